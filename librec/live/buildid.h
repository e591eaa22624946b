/* Build ids: which build of a program or library an address belongs to. */
#ifndef REC_BUILDID_H
#define REC_BUILDID_H

#include <stddef.h>

#define REC_BUILD_ID_TEXT 65 /* of 32 bytes; linkers make 8 to 20 */

/*
 * Looks for NT_GNU_BUILD_ID among ELF notes (elf(5)): each a head, a name and data, both padded to 4 bytes.
 * text gets it in hex and stays as it was where there is none, or one that is too long. The notes may be
 * anything at all. Thread and signal safe.
 */
void rec_build_id(const unsigned char *notes, size_t bytes, char text[REC_BUILD_ID_TEXT]);

#endif
