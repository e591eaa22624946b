/*
 * What a user has chosen, kept in $XDG_CONFIG_HOME/flight-recorder/PROGRAM.conf (~/.config by
 * default): for each table a line "TABLE.hide = COLUMN, COLUMN". Unknown tables and columns, and
 * files that cannot be read, are no error: there is nothing but taste in there.
 */
#ifndef TUI_SETTINGS_H
#define TUI_SETTINGS_H

#include "fr-tui/table.h"

struct tui_setting {
    const char *name; /* of the table, as in the file */
    struct tui_table *table;
};

/* Reads the environment: HOME, XDG_CONFIG_HOME. */
void tui_settings_load(const char *program, const struct tui_setting *settings, size_t count);
/* Replaces the file by rename. False and a reason when that fails. */
bool tui_settings_save(const char *program, const struct tui_setting *settings, size_t count, char *reason,
                       size_t size);

#endif
