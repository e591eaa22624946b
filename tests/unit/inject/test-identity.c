/* Names of communicators: equal where members must agree, different where they must not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inject.h"

/* identity.c takes the recorder's lock; here one thread is all there is. */
void slow_lock(void)
{
}

void slow_unlock(void)
{
}

static void ids_tell_communicators_apart(void **state)
{
    (void)state;
    unsigned char one[128], other[128];
    unsetenv("NCCL_COMM_ID");
    memset(one, 1, sizeof(one));
    memcpy(other, one, sizeof(one));
    other[127] = 2;
    uint64_t uid = identity_init(one, 4, 0);
    assert_int_not_equal(uid, 0);
    assert_int_equal(uid, identity_init(one, 4, 3));
    assert_int_not_equal(uid, identity_init(other, 4, 0));
    /* A rank that passes another size still names the same communicator: that is the fault to find. */
    assert_int_equal(uid, identity_init(one, 8, 0));
}

/* One id for all communicators of the job: the n-th use by each rank is the n-th communicator. */
static void a_shared_id_is_counted(void **state)
{
    (void)state;
    unsigned char id[128] = {7};
    setenv("NCCL_COMM_ID", "host:1234", 1);
    uint64_t first[4], second[4];
    for (uint32_t rank = 0; rank < 4; rank++)
        first[rank] = identity_init(id, 4, rank);
    for (uint32_t rank = 0; rank < 4; rank++)
        second[rank] = identity_init(id, 4, rank);
    for (uint32_t rank = 1; rank < 4; rank++) {
        assert_int_equal(first[rank], first[0]);
        assert_int_equal(second[rank], second[0]);
    }
    assert_int_not_equal(first[0], second[0]);
    assert_int_not_equal(identity_init(id, 2, 0), first[0]);
    identity_forget();
    assert_int_equal(identity_init(id, 4, 0), first[0]);
    unsetenv("NCCL_COMM_ID");
}

static void children_differ_by_parent_ordinal_and_color(void **state)
{
    (void)state;
    uint64_t child = identity_split(99, 1, 0);
    assert_int_equal(child, identity_split(99, 1, 0));
    assert_int_not_equal(child, identity_split(98, 1, 0));
    assert_int_not_equal(child, identity_split(99, 2, 0));
    assert_int_not_equal(child, identity_split(99, 1, 1));
    int excluded[] = {3, 1, 2}, same[] = {1, 2, 3}, fewer[] = {1, 2};
    uint64_t shrunk = identity_shrink(99, 1, excluded, 3);
    assert_int_equal(shrunk, identity_shrink(99, 1, same, 3));
    assert_int_not_equal(shrunk, identity_shrink(99, 1, fewer, 2));
    assert_int_not_equal(shrunk, identity_shrink(99, 2, same, 3));
    assert_int_equal(identity_grow(0, 4), 0);
    assert_int_not_equal(identity_grow(5, 4), identity_grow(5, 6));
    int devices[] = {0, 1};
    assert_int_equal(identity_init_all(1, 0, devices, 2), identity_init_all(1, 0, NULL, 2));
    assert_int_not_equal(identity_init_all(1, 0, devices, 2), identity_init_all(1, 1, devices, 2));
}

/* DJB2a by hand: ((5381 * 33) ^ byte) … over 128 bytes, checked on a value that is easily redone. */
static void the_old_hash_of_nccl(void **state)
{
    (void)state;
    char id[128] = {0};
    uint64_t want = 5381;
    for (int i = 0; i < 128; i++)
        want *= 33;
    assert_int_equal(nccl_hash_init(22304, id), want);
    id[127] = 5;
    assert_int_equal(nccl_hash_init(22304, id), want ^ 5);
}

static void hashes_follow_the_version(void **state)
{
    (void)state;
    unsigned char id[128] = {9, 8, 7};
    assert_int_equal(nccl_hash_init(21702, id), 0);
    assert_int_not_equal(nccl_hash_init(21801, id), 0);
    assert_int_equal(nccl_hash_init(0, id), 0);
    assert_int_equal(nccl_hash_init(22602, id), nccl_hash_init(23007, id));
    assert_int_not_equal(nccl_hash_init(22501, id), nccl_hash_init(22602, id));
    /* Before 2.24 repeated splits with one color collide in NCCL. */
    assert_int_equal(nccl_hash_split(22304, 77, 1, 0), nccl_hash_split(22304, 77, 2, 0));
    assert_int_not_equal(nccl_hash_split(22403, 77, 1, 0), nccl_hash_split(22403, 77, 2, 0));
    assert_int_not_equal(nccl_hash_split(22807, 77, 1, 0), nccl_hash_split(22807, 77, 2, 0));
    assert_int_equal(nccl_hash_split(22807, 0, 1, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_tell_communicators_apart),
        cmocka_unit_test(a_shared_id_is_counted),
        cmocka_unit_test(children_differ_by_parent_ordinal_and_color),
        cmocka_unit_test(the_old_hash_of_nccl),
        cmocka_unit_test(hashes_follow_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
