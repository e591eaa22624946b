/*
 * The layouts known beforehand, as offsetof() gives them for the headers of 3.8.18, 3.9.18,
 * 3.10.13, 3.11.7, 3.12.1, 3.13.0, 3.14.10 and 3.15.2 on LP64; fixed within a minor version; t:
 * free-threaded. 3.13 and later tell most of theirs: see layout.c. Constants in a header, so that the fast
 * path is compiled once for each.
 */
#ifndef CALLSITE_LAYOUTS_H
#define CALLSITE_LAYOUTS_H

#include "python.h"

/* clang-format off */
static const struct py_layout py_3_8 = { /* and 3.9 */
    .lines = PY_LINES_LNOTAB, .instr_unit = 1,
    .ts_interp = 16, .ts_thread = 176, .ts_frame = 24, .cframe_frame = PY_NOT_THERE,
    .frame_code = 32, .frame_previous = 24, .frame_instr = 104, .frame_owner = PY_NOT_THERE,
    .code_size = 176, .code_firstlineno = 40, .code_filename = 104, .code_name = 112, .code_linetable = 120,
    .code_bytecode = 48, .code_version = PY_NOT_THERE, .code_firsttraceable = PY_NOT_THERE,
    .ascii_data = 48, .compact_data = 72,
};
static const struct py_layout py_3_10 = {
    .lines = PY_LINES_RANGES, .instr_unit = 2,
    .ts_interp = 16, .ts_thread = 176, .ts_frame = 24, .cframe_frame = PY_NOT_THERE,
    .frame_code = 32, .frame_previous = 24, .frame_instr = 96, .frame_owner = PY_NOT_THERE,
    .code_size = 176, .code_firstlineno = 40, .code_filename = 104, .code_name = 112, .code_linetable = 120,
    .code_bytecode = 48, .code_version = PY_NOT_THERE, .code_firsttraceable = PY_NOT_THERE,
    .ascii_data = 48, .compact_data = 72,
};
static const struct py_layout py_3_11 = {
    .lines = PY_LINES_LOCATIONS,
    .ts_interp = 16, .ts_thread = 152, .ts_frame = 56, .cframe_frame = 8,
    .frame_code = 32, .frame_previous = 48, .frame_instr = 56, .frame_owner = 69,
    .code_size = 192, .code_firstlineno = 72, .code_filename = 112, .code_name = 120, .code_linetable = 136,
    .code_bytecode = 184, .code_version = PY_NOT_THERE, .code_firsttraceable = 168,
    .ascii_data = 48, .compact_data = 72,
};
static const struct py_layout py_3_12 = {
    .lines = PY_LINES_LOCATIONS, .by_version = 1,
    .ts_interp = 16, .ts_thread = 136, .ts_frame = 56, .cframe_frame = 0,
    .frame_code = 0, .frame_previous = 8, .frame_instr = 56, .frame_owner = 70,
    .code_size = 200, .code_firstlineno = 68, .code_filename = 112, .code_name = 120, .code_linetable = 136,
    .code_bytecode = 192, .code_version = 92, .code_firsttraceable = 176,
    .ascii_data = 40, .compact_data = 56,
};
static const struct py_layout py_3_13 = {
    .lines = PY_LINES_LOCATIONS, .by_version = 1,
    .ts_interp = 16, .ts_thread = 152, .ts_frame = 72, .cframe_frame = PY_NOT_THERE,
    .frame_code = 0, .frame_previous = 8, .frame_instr = 56, .frame_owner = 70,
    .code_size = 208, .code_firstlineno = 68, .code_filename = 112, .code_name = 120, .code_linetable = 136,
    .code_bytecode = 200, .code_version = 92, .code_firsttraceable = 184,
    .ascii_data = 40, .compact_data = 56,
};
static const struct py_layout py_3_14 = {
    .lines = PY_LINES_LOCATIONS, .by_version = 1,
    .ts_interp = 16, .ts_thread = 152, .ts_frame = 72, .cframe_frame = PY_NOT_THERE,
    .frame_code = 0, .frame_previous = 8, .frame_instr = 56, .frame_owner = 74,
    .code_size = 216, .code_firstlineno = 68, .code_filename = 112, .code_name = 120, .code_linetable = 136,
    .code_bytecode = 208, .code_version = 92, .code_firsttraceable = 192,
    .ascii_data = 40, .compact_data = 56,
};
static const struct py_layout py_3_15 = {
    .lines = PY_LINES_LOCATIONS, .by_version = 1,
    .ts_interp = 16, .ts_thread = 176, .ts_frame = 72, .cframe_frame = PY_NOT_THERE,
    .frame_code = 0, .frame_previous = 8, .frame_instr = 56, .frame_owner = 74,
    .code_size = 216, .code_firstlineno = 68, .code_filename = 112, .code_name = 120, .code_linetable = 136,
    .code_bytecode = 208, .code_version = 92, .code_firsttraceable = 192,
    .ascii_data = 40, .compact_data = 56,
};
static const struct py_layout py_3_14t = {
    .lines = PY_LINES_LOCATIONS, .by_version = 1, .header = 16,
    .ts_interp = 16, .ts_thread = 152, .ts_frame = 72, .cframe_frame = PY_NOT_THERE,
    .frame_code = 0, .frame_previous = 8, .frame_instr = 56, .frame_owner = 78, .frame_copy = 72,
    .code_size = 240, .code_firstlineno = 84, .code_filename = 128, .code_name = 136, .code_linetable = 152,
    .code_bytecode = 232, .code_version = 108, .code_copies = 224, .code_firsttraceable = 208,
    .ascii_data = 56, .compact_data = 72,
};
static const struct py_layout py_3_15t = {
    .lines = PY_LINES_LOCATIONS, .by_version = 1, .header = 16,
    .ts_interp = 16, .ts_thread = 176, .ts_frame = 72, .cframe_frame = PY_NOT_THERE,
    .frame_code = 0, .frame_previous = 8, .frame_instr = 56, .frame_owner = 78, .frame_copy = 72,
    .code_size = 240, .code_firstlineno = 84, .code_filename = 128, .code_name = 136, .code_linetable = 152,
    .code_bytecode = 232, .code_version = 108, .code_copies = 224, .code_firsttraceable = 208,
    .ascii_data = 56, .compact_data = 72,
};
/* clang-format on */

#endif
