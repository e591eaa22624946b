#include "buildid.h"

#include <elf.h>
#include <string.h>

static size_t padded(size_t bytes)
{
    return (bytes + 3) & ~(size_t)3;
}

static void write_hex(const unsigned char *data, size_t bytes, char *text)
{
    for (size_t i = 0; i < bytes; i++) {
        *text++ = "0123456789abcdef"[data[i] >> 4];
        *text++ = "0123456789abcdef"[data[i] & 15];
    }
    *text = '\0';
}

void rec_build_id(const unsigned char *notes, size_t bytes, char text[REC_BUILD_ID_TEXT])
{
    Elf64_Nhdr note;
    for (size_t at = 0; bytes - at >= sizeof(note);) {
        memcpy(&note, notes + at, sizeof(note));
        at += sizeof(note);
        size_t name = padded(note.n_namesz), data = padded(note.n_descsz);
        if (name > bytes - at || data > bytes - at - name)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + at, "GNU", 4) == 0 &&
            note.n_descsz <= REC_BUILD_ID_TEXT / 2) {
            write_hex(notes + at + name, note.n_descsz, text);
            return;
        }
        at += name + data;
    }
}
