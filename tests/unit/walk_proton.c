#include "identity/walk.h"
#include "support.h"

#include <check.h>
#include <proton/codec.h>
#include <proton/message.h>
#include <stdlib.h>
#include <string.h>

/* What Proton writes, the walk reads: an encoder that is not ours. */
static pn_message_t *message;
static char *buffer;
static size_t buffer_size;
static idemi_walk_t walk;

static void start(void)
{
    message = pn_message();
    ck_assert_ptr_nonnull(message);
}

static void finish(void)
{
    pn_message_free(message);
    message = NULL;
    free(buffer);
    buffer = NULL;
}

static bool walk_proton_message(void)
{
    size_t room = 200000;

    free(buffer);
    buffer = malloc(room);
    ck_assert_ptr_nonnull(buffer);
    ck_assert_int_eq(pn_message_encode(message, buffer, &room), 0);
    buffer_size = room;
    return idemi_walk((const uint8_t *)buffer, buffer_size, &walk);
}

static void set_string_id(size_t size)
{
    char *id = malloc(size);

    ck_assert_ptr_nonnull(id);
    memset(id, 'i', size);
    pn_data_clear(pn_message_id(message));
    pn_data_put_string(pn_message_id(message), pn_bytes(size, id));
    free(id);
}

START_TEST(id_of_every_type_is_read_back)
{
    static const size_t sizes[] = {1, 255, 256, 5000, 70000};
    static const uint64_t numbers[] = {0, 1, 255, 256, UINT64_MAX};
    pn_data_t *id = pn_message_id(message);
    pn_uuid_t uuid;

    ck_assert(walk_proton_message());
    ck_assert_int_eq(walk.message_id.type, IDEMI_ID_NONE);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        set_string_id(sizes[i]);
        ck_assert(walk_proton_message());
        ck_assert_int_eq(walk.message_id.type, IDEMI_ID_STRING);
        ck_assert_uint_eq(walk.message_id.bytes.size, sizes[i]);
        ck_assert_int_eq(walk.message_id.bytes.data[sizes[i] - 1], 'i');
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pn_data_clear(id);
        pn_data_put_ulong(id, numbers[i]);
        ck_assert(walk_proton_message());
        ck_assert_int_eq(walk.message_id.type, IDEMI_ID_ULONG);
        ck_assert_uint_eq(walk.message_id.number, numbers[i]);
    }
    memcpy(uuid.bytes, "0123456789abcdef", 16);
    pn_data_clear(id);
    pn_data_put_uuid(id, uuid);
    ck_assert(walk_proton_message());
    ck_assert_int_eq(walk.message_id.type, IDEMI_ID_UUID);
    ck_assert_mem_eq(walk.message_id.bytes.data, uuid.bytes, 16);
    pn_data_clear(id);
    pn_data_put_binary(id, pn_bytes(3, "a\0b"));
    ck_assert(walk_proton_message());
    ck_assert_int_eq(walk.message_id.type, IDEMI_ID_BINARY);
    ck_assert_uint_eq(walk.message_id.bytes.size, 3);
    ck_assert_mem_eq(walk.message_id.bytes.data, "a\0b", 3);
}
END_TEST

static void put_property(const char *name)
{
    pn_data_put_string(pn_message_properties(message),
                       pn_bytes(strlen(name), name));
}

START_TEST(fields_are_read_back)
{
    pn_data_t *properties = pn_message_properties(message);
    pn_data_t *annotations = pn_message_annotations(message);

    set_string_id(3);
    pn_message_set_durable(message, true);
    pn_message_set_ttl(message, 60000);
    pn_message_set_delivery_count(message, 300);
    pn_message_set_user_id(message, pn_bytes(4, "user"));
    pn_message_set_address(message, "orders");
    pn_message_set_content_type(message, "text/plain");
    pn_message_set_creation_time(message, 1700000000000);
    pn_message_set_group_id(message, "group");
    pn_message_set_group_sequence(message, 9);
    pn_data_put_map(annotations);
    pn_data_enter(annotations);
    pn_data_put_symbol(annotations, pn_bytes(14, "x-opt-jms-dest"));
    pn_data_put_byte(annotations, 0);
    pn_data_exit(annotations);
    pn_data_put_map(properties);
    pn_data_enter(properties);
    put_property("JMSXDeliveryCount");
    pn_data_put_null(properties);
    put_property("_AMQ_DUPL_ID");
    pn_data_put_binary(properties, pn_bytes(2, "\0k"));
    pn_data_exit(properties);
    pn_data_put_string(pn_message_body(message), pn_bytes(4, "body"));

    ck_assert(walk_proton_message());
    ck_assert_int_eq(walk.message_id.type, IDEMI_ID_STRING);
    ck_assert_uint_eq(walk.delivery_count, 300);
    ck_assert_uint_eq(walk.group_id.size, 5);
    ck_assert_mem_eq(walk.group_id.data, "group", 5);
    ck_assert_int_eq(walk.duplicate_id.type, IDEMI_ID_BINARY);
    ck_assert_mem_eq(walk.duplicate_id.bytes.data, "\0k", 2);
    ck_assert(walk.has_body);

    /* Proton's decoder takes every piece of it. Only two are messages: with
     * its properties, and with its application properties too. */
    size_t whole = 0;
    for (size_t size = 0; size < buffer_size; size++) {
        whole += idemi_walk((const uint8_t *)buffer, size, &walk);
    }
    ck_assert_uint_eq(whole, 2);
}
END_TEST

START_TEST(every_kind_of_body_is_taken)
{
    pn_data_t *body = pn_message_body(message);

    for (int inferred = 0; inferred < 2; inferred++) {
        pn_message_set_inferred(message, inferred != 0);
        pn_data_clear(body);
        ck_assert(walk_proton_message());
        ck_assert(!walk.has_body);
        pn_data_put_binary(body, pn_bytes(0, ""));
        ck_assert(walk_proton_message());
        ck_assert(walk.has_body);
        pn_data_clear(body);
        pn_data_put_list(body);
        ck_assert(walk_proton_message());
        pn_data_clear(body);
        pn_data_put_list(body);
        pn_data_enter(body);
        pn_data_put_array(body, true, PN_STRING);
        pn_data_enter(body);
        pn_data_put_symbol(body, pn_bytes(1, "d"));
        pn_data_put_string(body, pn_bytes(1, "s"));
        pn_data_exit(body);
        pn_data_put_array(body, false, PN_UUID);
        pn_data_put_map(body);
        pn_data_put_described(body);
        pn_data_enter(body);
        pn_data_put_ulong(body, 1);
        pn_data_put_null(body);
        pn_data_exit(body);
        ck_assert(walk_proton_message());
        ck_assert(walk.has_body);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("walk-proton");
    TCase *tcase = tcase_create("walk-proton");

    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_test(tcase, id_of_every_type_is_read_back);
    tcase_add_test(tcase, fields_are_read_back);
    tcase_add_test(tcase, every_kind_of_body_is_taken);
    return test_run(suite);
}
