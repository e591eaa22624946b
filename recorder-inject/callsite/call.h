/* Which addresses can be return addresses: those behind the instruction of a call. */
#ifndef CALLSITE_CALL_H
#define CALLSITE_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#define CALL_BYTES 7
#else
#define CALL_BYTES 4
#endif

/* Do the CALL_BYTES bytes before address, which are given, end in a call? */
static inline bool call_ends(uint64_t address, const unsigned char code[CALL_BYTES])
{
#if defined(__x86_64__)
    /* Intel SDM, CALL: E8 rel32, or FF /2 with its ModRM, SIB and displacement. */
    const unsigned char *end = code + CALL_BYTES;
    (void)address;
    if (end[-5] == 0xe8)
        return true;
    for (int length = 2; length <= CALL_BYTES; length++) {
        if (end[-length] != 0xff || (end[1 - length] & 0x38) != 0x10)
            continue;
        unsigned mod = end[1 - length] >> 6, rm = end[1 - length] & 7;
        int need = 2 + (mod != 3 && rm == 4) + (mod == 1 ? 1 : mod == 2 || (mod == 0 && rm == 5) ? 4 : 0);
        if (need == length)
            return true;
    }
    return false;
#elif defined(__aarch64__)
    /* Arm ARM: BL imm26, BLR and its authenticating forms. */
    uint32_t word;
    memcpy(&word, code, sizeof(word));
    return (address & 3) == 0 && ((word & 0xfc000000u) == 0x94000000u ||
                                  (word & 0xfffffc1fu) == 0xd63f0000u || (word & 0xfefff800u) == 0xd63f0800u);
#else
    (void)address;
    (void)code;
    return true;
#endif
}

#endif
