/* The fields of JSON lines as columns. */
#include "dump.h"
#include "out.h"
#include "row.h"

static void csv_op(const struct rec_process *process, const struct rec_op *op)
{
    struct row row;
    row_fill(&row, process, op);
    for (int i = 0; i < ROW_NFIELDS; i++) {
        const struct row_value *value = &row.values[i];
        if (i)
            out_char(',');
        switch (value->type) {
        case ROW_ABSENT:
            break;
        case ROW_NUMBER:
            out_u64(value->u.number);
            break;
        case ROW_SIGNED:
            out_i64(value->u.signed_number);
            break;
        case ROW_TEXT:
            out_csv(value->u.text);
            break;
        case ROW_UID:
            out_hex(value->u.number, 16);
            break;
        case ROW_HANDLE:
            out_text("0x");
            out_hex(value->u.number, 1);
            break;
        case ROW_TRUE:
            out_text("true");
            break;
        }
    }
    out_char('\n');
}

static void csv_process(const struct rec_job *job, const struct rec_process *process)
{
    static bool done;
    (void)job;
    (void)process;
    for (int i = 0; i < ROW_NFIELDS && !done; i++) {
        if (i)
            out_char(',');
        out_text(row_names[i]);
    }
    if (!done)
        out_char('\n');
    done = true;
}

const struct dump_printer dump_csv = {.process = csv_process, .op = csv_op};
