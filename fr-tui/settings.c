#include "fr-tui/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "flight-recorder"

/* The directory above ours; false when the user has none. */
static bool config_home(char *out, size_t size)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    if (xdg != NULL && xdg[0] == '/')
        n = snprintf(out, size, "%s", xdg);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, size, "%s/.config", home);
    return n > 0 && (size_t)n < size;
}

static bool file_path(const char *program, const char *end, char *out, size_t size)
{
    char home[2048];
    if (!config_home(home, sizeof home))
        return false;
    int n = snprintf(out, size, "%s/" DIRECTORY "/%s.conf%s", home, program, end);
    return n > 0 && (size_t)n < size;
}

static void hide_columns(struct tui_table *table, char *names)
{
    const struct tui_column *columns;
    unsigned count = tui_table_columns(table, &columns);
    for (char *save, *name = strtok_r(names, ",\n", &save); name != NULL;
         name = strtok_r(NULL, ",\n", &save)) {
        name += strspn(name, " \t");
        for (unsigned c = 0; c < count; c++) {
            size_t n = strlen(columns[c].name);
            if (strncmp(name, columns[c].name, n) == 0 && name[n + strspn(name + n, " \t")] == '\0')
                tui_table_hide(table, c, true);
        }
    }
}

void tui_settings_load(const char *program, const struct tui_setting *settings, size_t count)
{
    char path[4096], line[1024];
    FILE *file = file_path(program, "", path, sizeof path) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        for (size_t i = 0; i < count; i++) {
            size_t n = strlen(settings[i].name);
            if (strncmp(line, settings[i].name, n) == 0 && strncmp(line + n, ".hide =", 7) == 0)
                hide_columns(settings[i].table, line + n + 7);
        }
    }
    fclose(file);
}

static void write_settings(FILE *file, const struct tui_setting *settings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct tui_column *columns;
        unsigned n = tui_table_columns(settings[i].table, &columns);
        const char *before = " ";
        fprintf(file, "%s.hide =", settings[i].name);
        for (unsigned c = 0; c < n; c++) {
            if (!tui_table_hides(settings[i].table, c))
                continue;
            fprintf(file, "%s%s", before, columns[c].name);
            before = ", ";
        }
        putc('\n', file);
    }
}

bool tui_settings_save(const char *program, const struct tui_setting *settings, size_t count, char *reason,
                       size_t size)
{
    char home[2048], dir[2112], path[4096], temporary[4096];
    if (!config_home(home, sizeof home) || !file_path(program, "", path, sizeof path) ||
        !file_path(program, ".new", temporary, sizeof temporary)) {
        snprintf(reason, size, "no home directory to keep the setup in");
        return false;
    }
    snprintf(dir, sizeof dir, "%s/" DIRECTORY, home);
    mkdir(home, 0700);
    mkdir(dir, 0700);
    FILE *file = fopen(temporary, "we");
    bool ok = file != NULL;
    if (ok) {
        write_settings(file, settings, count);
        ok = ferror(file) == 0;
        ok = fclose(file) == 0 && ok && rename(temporary, path) == 0;
    }
    if (!ok) {
        snprintf(reason, size, "%.120s: %s", path, strerror(errno));
        unlink(temporary);
    }
    return ok;
}
