/* The screen before there is something to browse: what is being done, and how far it is. */
#include <signal.h>
#include <stdio.h>

#include "fr-analyze/tui/browse.h"
#include "fr-common.h"
#include "fr-tui/chart.h"
#include "fr-tui/term.h"

#define LOOK_MS   20 /* between two looks: the first screen is not to be kept waiting */
#define PAINT_MS  100
#define FLASH_MS  80 /* what is over so soon needs no screen of its own */
#define METER_MAX 72

static void paint(const char *title, const struct browse_progress *progress)
{
    char percent[16] = "", clean[512];
    tui_begin();
    if (!tui_too_small(3, 20)) {
        int width = tui_columns() < METER_MAX ? tui_columns() : METER_MAX;
        int x = tui_say(0, 0, TUI_BOLD, "fr-analyze  ");
        tui_put(0, x, tui_columns() - x, TUI_NORMAL, TUI_LEFT, fr_clean(clean, sizeof clean, title));
        if (tui_rows() > 4)
            tui_put(2, 0, tui_columns(), TUI_NORMAL, TUI_LEFT, progress->text);
        if (progress->part >= 0)
            snprintf(percent, sizeof percent, "%.0f %%", progress->part * 100);
        tui_meter(tui_rows() > 4 ? 3 : 1, 0, width, "", progress->part, 1, TUI_METER_FILL, percent);
        x = tui_say(tui_rows() - 1, 0, TUI_BAR_KEY, "F10");
        tui_put(tui_rows() - 1, x, 6, TUI_BAR_LABEL, TUI_LEFT, "Quit");
    }
    tui_end();
}

static bool leaves(const struct tui_event *event)
{
    return event->type == TUI_EV_QUIT ||
           (event->type == TUI_EV_KEY && (event->key == 'q' || event->key == TUI_F(10)));
}

enum browse_wait browse_wait(const struct browse_options *options, const char *title,
                             void (*look)(void *context, struct browse_progress *progress), void *context,
                             int *signo)
{
    const struct tui_options terminal = {.mono = options->mono, .ascii = options->ascii};
    char reason[256];
    *signo = 0;
    if (!tui_open(&terminal, reason, sizeof reason)) {
        fr_errorf(NULL, "%s", reason);
        return BROWSE_NO_TERMINAL;
    }
    struct tui_event event = {.type = TUI_EV_TIMEOUT};
    for (int waited_ms = 0, painted_ms = FLASH_MS - PAINT_MS;; waited_ms += LOOK_MS) {
        struct browse_progress progress;
        look(context, &progress);
        if (progress.over)
            return BROWSE_READY;
        if (waited_ms - painted_ms >= PAINT_MS || event.type != TUI_EV_TIMEOUT) {
            paint(title, &progress);
            painted_ms = waited_ms;
        }
        tui_wait(LOOK_MS, &event);
        if (leaves(&event)) {
            *signo = event.type == TUI_EV_QUIT ? event.signal : 0;
            tui_close();
            return BROWSE_LEFT;
        }
    }
}

void browse_close(void)
{
    tui_close();
}

void browse_pass_on(int signo)
{
    if (signo == 0 || signo == SIGINT)
        return;
    signal(signo, SIG_DFL);
    raise(signo);
}
