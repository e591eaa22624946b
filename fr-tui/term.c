#include "fr-tui/term.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

/* Quit signals are caught, stop and size signals too: ncurses' own handlers are not signal safe. */
static const int quit_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define ESC_MS     20
#define ESC_MS_MAX 5000

static struct {
    bool open, utf8, colors, resized;
    SCREEN *screen;
    FILE *input;
    int input_fd;
    int wake[2]; /* written by signal handlers, so that poll returns */
    int cursor_y, cursor_x;
    attr_t attr[TUI_STYLES];
    struct sigaction old_quit[COUNT(quit_signals)];
    struct sigaction old_crash[COUNT(crash_signals)];
    struct sigaction old_winch, old_tstp, old_cont, old_pipe;
} tui;

/* What the crash handler needs, set before the handler is. */
static struct termios saved_modes;
static char restore_text[256];
static size_t restore_bytes;

static volatile sig_atomic_t got_quit, got_winch, got_tstp, got_cont;

static void wake_up(void)
{
    int saved = errno;
    ssize_t n = write(tui.wake[1], "", 1);
    (void)n; /* full means that poll returns anyway */
    errno = saved;
}

static void on_signal(int signo)
{
    switch (signo) {
    case SIGWINCH:
        got_winch = 1;
        break;
    case SIGTSTP:
        got_tstp = 1;
        break;
    case SIGCONT:
        got_cont = 1;
        break;
    default:
        got_quit = signo;
        break;
    }
    wake_up();
}

static void on_crash(int signo)
{
    ssize_t n = write(STDOUT_FILENO, restore_text, restore_bytes);
    (void)n;
    tcsetattr(tui.input_fd, TCSANOW, &saved_modes);
    for (size_t i = 0; i < COUNT(crash_signals); i++) {
        if (crash_signals[i] == signo)
            sigaction(signo, &tui.old_crash[i], NULL);
    }
    raise(signo); /* blocked here: delivered on return, to whom it belonged before */
}

static void handle(int signo, void (*handler)(int), struct sigaction *old)
{
    struct sigaction action = {.sa_handler = handler};
    sigfillset(&action.sa_mask);
    sigaction(signo, &action, old);
}

static void catch_signals(void)
{
    for (size_t i = 0; i < COUNT(quit_signals); i++)
        handle(quit_signals[i], on_signal, &tui.old_quit[i]);
    for (size_t i = 0; i < COUNT(crash_signals); i++)
        handle(crash_signals[i], on_crash, &tui.old_crash[i]);
    handle(SIGWINCH, on_signal, &tui.old_winch);
    handle(SIGTSTP, on_signal, &tui.old_tstp);
    handle(SIGCONT, on_signal, &tui.old_cont);
    handle(SIGPIPE, SIG_IGN, &tui.old_pipe);
}

static void release_signals(void)
{
    for (size_t i = 0; i < COUNT(quit_signals); i++)
        sigaction(quit_signals[i], &tui.old_quit[i], NULL);
    for (size_t i = 0; i < COUNT(crash_signals); i++)
        sigaction(crash_signals[i], &tui.old_crash[i], NULL);
    sigaction(SIGWINCH, &tui.old_winch, NULL);
    sigaction(SIGTSTP, &tui.old_tstp, NULL);
    sigaction(SIGCONT, &tui.old_cont, NULL);
    sigaction(SIGPIPE, &tui.old_pipe, NULL);
}

/* Appends a terminfo string without its delays. */
static void add_restore(const char *capability)
{
    const char *text = tigetstr(capability);
    if (text == NULL || text == (const char *)-1)
        return;
    while (*text != '\0' && restore_bytes < sizeof restore_text) {
        if (text[0] == '$' && text[1] == '<') {
            text += strcspn(text, ">");
            text += *text == '>';
        } else {
            restore_text[restore_bytes++] = *text++;
        }
    }
}

static bool locale_is_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

bool tui_utf8(void)
{
    return tui.open ? tui.utf8 : locale_is_utf8();
}

int tui_rows(void)
{
    return LINES;
}

int tui_columns(void)
{
    return COLS;
}

static void set_styles(void)
{
    static const struct {
        enum tui_style style;
        short fore, back; /* -1 = the terminal's own */
        attr_t color, mono;
    } theme[] = {
        {TUI_NORMAL, -1, -1, A_NORMAL, A_NORMAL},
        {TUI_DIM, -1, -1, A_DIM, A_DIM},
        {TUI_BOLD, -1, -1, A_BOLD, A_BOLD},
        {TUI_GOOD, COLOR_GREEN, -1, A_NORMAL, A_NORMAL},
        {TUI_WARN, COLOR_YELLOW, -1, A_NORMAL, A_BOLD},
        {TUI_BAD, COLOR_RED, -1, A_BOLD, A_BOLD},
        {TUI_ACCENT, COLOR_CYAN, -1, A_NORMAL, A_NORMAL},
        {TUI_COLUMN, COLOR_BLACK, COLOR_GREEN, A_NORMAL, A_REVERSE},
        {TUI_COLUMN_SORT, COLOR_BLACK, COLOR_CYAN, A_NORMAL, A_REVERSE | A_BOLD},
        {TUI_SELECTED, COLOR_BLACK, COLOR_CYAN, A_NORMAL, A_REVERSE},
        {TUI_SELECTED_OFF, COLOR_BLACK, COLOR_WHITE, A_NORMAL, A_BOLD | A_UNDERLINE},
        {TUI_TAGGED, COLOR_YELLOW, -1, A_BOLD, A_BOLD},
        {TUI_MATCH, COLOR_BLACK, COLOR_YELLOW, A_NORMAL, A_REVERSE},
        {TUI_BAR_KEY, -1, -1, A_NORMAL, A_NORMAL},
        {TUI_BAR_LABEL, COLOR_BLACK, COLOR_CYAN, A_NORMAL, A_REVERSE},
        {TUI_METER_LABEL, COLOR_CYAN, -1, A_NORMAL, A_NORMAL},
        {TUI_METER_FILL, COLOR_GREEN, -1, A_NORMAL, A_BOLD},
    };
    _Static_assert(COUNT(theme) == TUI_STYLES, "a look for every style");
    for (size_t i = 0; i < COUNT(theme); i++) {
        short pair = (short)(i + 1);
        if (tui.colors && init_pair(pair, theme[i].fore, theme[i].back) == OK)
            tui.attr[theme[i].style] = theme[i].color | (attr_t)COLOR_PAIR(pair);
        else
            tui.attr[theme[i].style] = theme[i].mono;
    }
}

static bool open_input(char *reason, size_t size)
{
    if (isatty(STDIN_FILENO)) {
        tui.input_fd = dup(STDIN_FILENO);
    } else {
        tui.input_fd = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    }
    if (tui.input_fd < 0) {
        snprintf(reason, size, "no terminal to read keys from: %s", strerror(errno));
        return false;
    }
    tui.input = fdopen(tui.input_fd, "r");
    if (tui.input == NULL || tcgetattr(tui.input_fd, &saved_modes) != 0) {
        snprintf(reason, size, "cannot read keys: %s", strerror(errno));
        return false;
    }
    return true;
}

static void close_descriptors(void)
{
    if (tui.input != NULL)
        fclose(tui.input);
    else if (tui.input_fd >= 0)
        close(tui.input_fd);
    for (int i = 0; i < 2; i++) {
        if (tui.wake[i] >= 0)
            close(tui.wake[i]);
    }
    tui.input = NULL;
    tui.input_fd = tui.wake[0] = tui.wake[1] = -1;
}

static void follow_size(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
        resize_term(size.ws_row, size.ws_col);
}

/*
 * How long the rest of a key that begins with ESC may take; Esc alone takes that long to have an
 * effect. The bytes of a key come in one piece but on the worst of lines, for which there is ncurses'
 * variable.
 */
static int escape_delay(void)
{
    const char *told = getenv("ESCDELAY");
    char *end;
    long ms = told != NULL ? strtol(told, &end, 10) : 0;
    return told != NULL && *told != '\0' && *end == '\0' && ms >= 0 && ms <= ESC_MS_MAX ? (int)ms : ESC_MS;
}

static void start_screen(const struct tui_options *options)
{
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    meta(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    set_escdelay(escape_delay());
    mousemask(BUTTON1_CLICKED | BUTTON1_PRESSED | BUTTON1_DOUBLE_CLICKED | BUTTON4_PRESSED | BUTTON5_PRESSED,
              NULL);
    mouseinterval(0);

    const char *no_color = getenv("NO_COLOR");
    tui.colors = !options->mono && (no_color == NULL || *no_color == '\0') && has_colors() &&
                 start_color() == OK && use_default_colors() == OK;
    tui.utf8 = !options->ascii && locale_is_utf8();
    set_styles();

    restore_bytes = 0;
    add_restore("sgr0");
    add_restore("rmkx");
    add_restore("cnorm");
    add_restore("rmcup");
}

bool tui_open(const struct tui_options *options, char *reason, size_t size)
{
    static bool at_exit;
    if (tui.open)
        return true;
    setlocale(LC_CTYPE, "");
    tui.input = NULL;
    tui.wake[0] = tui.wake[1] = -1;
    if (!open_input(reason, size)) {
        close_descriptors();
        return false;
    }
    if (pipe2(tui.wake, O_CLOEXEC | O_NONBLOCK) != 0) {
        snprintf(reason, size, "pipe: %s", strerror(errno));
        close_descriptors();
        return false;
    }
    got_quit = got_winch = got_tstp = got_cont = 0;
    catch_signals(); /* before newterm: ncurses leaves alone what is handled already */
    const char *name = getenv("TERM");
    tui.screen = newterm(NULL, stdout, tui.input);
    const char *move_cursor = tui.screen != NULL ? tigetstr("cup") : NULL;
    if (move_cursor == NULL || move_cursor == (const char *)-1) {
        if (tui.screen != NULL) {
            endwin();
            delscreen(tui.screen);
        }
        release_signals();
        snprintf(reason, size, "terminal type '%s' is unknown or cannot show a full screen",
                 name != NULL ? name : "");
        close_descriptors();
        return false;
    }
    follow_size(); /* LINES and COLUMNS of the environment may be somebody else's */
    start_screen(options);
    tui.open = true;
    if (!at_exit)
        at_exit = atexit(tui_close) == 0;
    return true;
}

void tui_close(void)
{
    if (!tui.open)
        return;
    tui.open = false;
    curs_set(1);
    endwin();
    delscreen(tui.screen);
    release_signals();
    close_descriptors();
}

static void suspend(void)
{
    struct sigaction ours, standard = {.sa_handler = SIG_DFL};
    endwin();
    sigaction(SIGTSTP, &standard, &ours);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &ours, NULL);
}

static bool take_signals(struct tui_event *event)
{
    if (got_quit != 0) {
        event->type = TUI_EV_QUIT;
        event->signal = got_quit;
        return true;
    }
    if (!got_winch && !got_tstp && !got_cont)
        return false;
    if (got_tstp)
        suspend();
    else if (got_cont)
        endwin(); /* somebody else may have changed the terminal meanwhile: set it up again */
    got_winch = got_tstp = got_cont = 0;
    follow_size();
    tui_redraw(); /* what the terminal made of its lines when it was resized is its own affair */
    event->type = TUI_EV_RESIZE;
    return true;
}

static int translate(int code)
{
    static const struct {
        int curses, key;
    } map[] = {
        {KEY_UP, TUI_KEY_UP},         {KEY_DOWN, TUI_KEY_DOWN},
        {KEY_LEFT, TUI_KEY_LEFT},     {KEY_RIGHT, TUI_KEY_RIGHT},
        {KEY_HOME, TUI_KEY_HOME},     {KEY_END, TUI_KEY_END},
        {KEY_PPAGE, TUI_KEY_PAGE_UP}, {KEY_NPAGE, TUI_KEY_PAGE_DOWN},
        {KEY_DC, TUI_KEY_DELETE},     {KEY_BACKSPACE, TUI_KEY_BACKSPACE},
        {KEY_ENTER, TUI_KEY_ENTER},   {KEY_BTAB, TUI_KEY_BACK_TAB},
    };
    for (size_t i = 0; i < COUNT(map); i++) {
        if (map[i].curses == code)
            return map[i].key;
    }
    if (code > KEY_F0 && code <= KEY_F(24))
        return TUI_F(code - KEY_F0);
    return TUI_KEY_NONE;
}

static bool take_mouse(struct tui_event *event)
{
    MEVENT mouse;
    if (getmouse(&mouse) != OK)
        return false;
    event->type = TUI_EV_MOUSE;
    event->y = mouse.y;
    event->x = mouse.x;
    if (mouse.bstate & BUTTON4_PRESSED)
        event->mouse = TUI_MOUSE_WHEEL_UP;
    else if (mouse.bstate & BUTTON5_PRESSED)
        event->mouse = TUI_MOUSE_WHEEL_DOWN;
    else if (mouse.bstate & BUTTON1_DOUBLE_CLICKED)
        event->mouse = TUI_MOUSE_DOUBLE;
    else if (mouse.bstate & (BUTTON1_CLICKED | BUTTON1_PRESSED))
        event->mouse = TUI_MOUSE_CLICK;
    else
        return false;
    return true;
}

static bool take_key(struct tui_event *event)
{
    wint_t code;
    for (;;) {
        int kind = get_wch(&code);
        if (kind == ERR)
            return false;
        if (kind == KEY_CODE_YES) {
            if (code == KEY_MOUSE && take_mouse(event))
                return true;
            event->key = translate((int)code);
        } else if (code == '\n' || code == '\r') {
            event->key = TUI_KEY_ENTER;
        } else if (code == 8) {
            event->key = TUI_KEY_BACKSPACE;
        } else {
            event->key = code <= 0x10ffff ? (int)code : TUI_KEY_NONE;
        }
        if (event->key != TUI_KEY_NONE) {
            event->type = TUI_EV_KEY;
            return true;
        }
    }
}

void tui_wait(int timeout_ms, struct tui_event *event)
{
    *event = (struct tui_event){.type = TUI_EV_TIMEOUT};
    if (take_signals(event) || take_key(event))
        return;
    struct pollfd fds[2] = {{.fd = tui.input_fd, .events = POLLIN}, {.fd = tui.wake[0], .events = POLLIN}};
    int ready = poll(fds, COUNT(fds), timeout_ms);
    if (fds[1].revents & POLLIN) {
        char sink[64];
        while (read(tui.wake[0], sink, sizeof sink) > 0)
            ;
    }
    if (take_signals(event) || ready <= 0)
        return;
    if (fds[0].revents != 0 && !take_key(event) && (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)))
        event->type = TUI_EV_QUIT;
}

void tui_begin(void)
{
    tui.cursor_y = -1;
    erase();
}

void tui_end(void)
{
    bool shown = tui.cursor_y >= 0 && tui.cursor_y < LINES && tui.cursor_x < COLS;
    if (shown)
        move(tui.cursor_y, tui.cursor_x);
    curs_set(shown);
    refresh();
}

void tui_redraw(void)
{
    clearok(curscr, TRUE);
}

void tui_put_part(int y, int x, int width, int skip, int cells, enum tui_style style, enum tui_align align,
                  const char *text)
{
    wchar_t field[TUI_FIELD_CHARS];
    if (width > TUI_FIELD_CELLS)
        width = TUI_FIELD_CELLS;
    if (x < 0) {
        skip -= x;
        cells += x;
        x = 0;
    }
    if (cells > width - skip)
        cells = width - skip;
    if (cells > COLS - x)
        cells = COLS - x;
    if (y < 0 || y >= LINES || cells <= 0)
        return;
    tui_text_field(field, text, 0, width, align, tui.utf8);
    tui_text_cut(field, skip, cells);
    attrset((int)tui.attr[style]);
    mvaddwstr(y, x, field);
    attrset(A_NORMAL);
}

void tui_put(int y, int x, int width, enum tui_style style, enum tui_align align, const char *text)
{
    tui_put_part(y, x, width, 0, width, style, align, text);
}

void tui_put_from(int y, int x, int width, enum tui_style style, const char *text, size_t from)
{
    wchar_t field[TUI_FIELD_CHARS];
    if (width > COLS - x)
        width = COLS - x;
    if (y < 0 || y >= LINES || x < 0 || width <= 0)
        return;
    tui_text_field(field, text, from, width, TUI_LEFT, tui.utf8);
    attrset((int)tui.attr[style]);
    mvaddwstr(y, x, field);
    attrset(A_NORMAL);
}

int tui_say(int y, int x, enum tui_style style, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n <= 0)
        return 0;
    int cells = (int)tui_text_cells(text, tui.utf8);
    int room = COLS - x;
    tui_put(y, x, cells < room ? cells : room, style, TUI_LEFT, text);
    return cells;
}

void tui_cursor(int y, int x)
{
    tui.cursor_y = y;
    tui.cursor_x = x;
}

bool tui_too_small(int rows, int columns)
{
    if (LINES >= rows && COLS >= columns)
        return false;
    static const char *const words[] = {"terminal too small", "too small", "small", "-"};
    for (size_t i = 0; i < COUNT(words); i++) {
        int length = (int)strlen(words[i]);
        if (length <= COLS) {
            tui_put(LINES / 2, (COLS - length) / 2, length, TUI_BOLD, TUI_LEFT, words[i]);
            break;
        }
    }
    return true;
}
