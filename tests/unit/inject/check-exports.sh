#!/bin/sh
# The recorder exports the functions of its table, the libc functions it stands in for and the tables of
# a profiler plugin, nothing else, and needs no library but libc (before glibc 2.34: and its threads and dl parts).
set -eu
library=$1 table=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
    sed -n 's/^NCCL_API(\([A-Za-z]*\),.*/\1/p' "$table"
    printf '%s\n' _exit _Exit dlsym ncclProfiler_v4 ncclProfiler_v5 ncclProfiler_v6
} | sort >"$scratch/want"
nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' | grep -v '^__[a-z]*san_' |
    sort -u >"$scratch/have"
diff -u "$scratch/want" "$scratch/have"
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -v -E '^(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux.*|lib[a-z]*san\.so.*)$' || true)
[ -z "$needed" ] || { echo "needs: $needed"; exit 1; }
[ "$(wc -l <"$scratch/want")" -gt 30 ]
