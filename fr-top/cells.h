/* What the tables of the screen put into their cells, and where they have it from. */
#ifndef TOP_CELLS_H
#define TOP_CELLS_H

#include "fr-top/diagnosis.h"
#include "fr-top/views.h"

#define TOP_COUNT(array) ((unsigned)(sizeof(array) / sizeof(array)[0]))

enum tui_style top_role_style(enum rec_role role);

/* Text, and the number that the column sorts by. */
void top_put_count(struct tui_cell *cell, double value);
void top_put_u64(struct tui_cell *cell, uint64_t value);
void top_put_text(struct tui_cell *cell, const char *text);
void top_put_worry(struct tui_cell *cell, uint64_t value, enum tui_style style); /* zero is the good news */
void top_put_age(struct tui_cell *cell, const struct top_snapshot *snapshot, uint64_t since_ns);
void top_put_seq(struct tui_cell *cell, uint64_t next_seq);
void top_put_comm(struct tui_cell *cell, const char *name, uint64_t uid);
const char *top_made_by(uint32_t made_by); /* "CommSplit"; "-" */

/* The snapshot behind a source's context, and the id of a membership's row. */
const struct top_snapshot *top_of(void *context);
uint64_t top_member_id(const struct top_snapshot *snapshot, uint32_t member);

#endif
