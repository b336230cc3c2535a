#include "samples.h"

static const char uuid[] = "98 00112233445566778899aabbccddeeff";

/* A message-id, or something in its place. */
static void write_id(encoded_t *encoded, unsigned index)
{
    switch (index % 9) {
    case 0:
        encoded_variable(encoded, 0xa1, "order-1", 7);
        break;
    case 1:
        encoded_variable(encoded, 0xb1, "order-1", 7);
        break;
    case 2:
        encoded_hex(encoded, "44");
        break;
    case 3:
        encoded_hex(encoded, "53 07");
        break;
    case 4:
        encoded_hex(encoded, "80 fedcba9876543210");
        break;
    case 5:
        encoded_hex(encoded, uuid);
        break;
    case 6:
        encoded_variable(encoded, 0xa0, "\x00\xff", 2);
        break;
    case 7:
        encoded_variable(encoded, 0xb0, "\x00\xff", 2);
        break;
    default:
        encoded_hex(encoded, "40");
        break;
    }
}

/* One value of each shape, nested in one another. */
static uint32_t write_values(encoded_t *encoded, unsigned wide)
{
    size_t list;
    size_t array;

    encoded_hex(encoded, "40 41 5001 6000ff 7000000001 83 0000018bcfe56800");
    encoded_hex(encoded, "94 00112233445566778899aabbccddeeff 45");
    list = encoded_open(encoded, wide ? 0xd0 : 0xc0);
    encoded_hex(encoded, "00 a3 01 78");
    array = encoded_open(encoded, wide ? 0xf0 : 0xe0);
    encoded_hex(encoded, "00 53 01 a1 01 61 02 6263");
    encoded_close(encoded, array, 2);
    array = encoded_open(encoded, wide ? 0xf0 : 0xe0);
    encoded_hex(encoded, "71 00000001 00000002");
    encoded_close(encoded, array, 2);
    encoded_close(encoded, list, 2);
    return 9;
}

static void write_annotations(encoded_t *encoded, unsigned code, unsigned wide)
{
    encoded_section(encoded, code);
    size_t map = encoded_open(encoded, wide ? 0xd1 : 0xc1);
    encoded_variable(encoded, 0xa3, "x-opt-jms-dest", 14);
    encoded_hex(encoded, "51 00 5301 a1 01 61");
    encoded_close(encoded, map, 4);
}

static void write_body(encoded_t *encoded, unsigned kind, unsigned wide)
{
    switch (kind) {
    case 0:
        encoded_section(encoded, 0x75);
        encoded_variable(encoded, wide ? 0xb0 : 0xa0, "body", 4);
        break;
    case 1: {
        encoded_section(encoded, 0x76);
        size_t list = encoded_open(encoded, wide ? 0xd0 : 0xc0);
        encoded_close(encoded, list, write_values(encoded, wide));
        break;
    }
    default: {
        encoded_section(encoded, 0x77);
        size_t list = encoded_open(encoded, wide ? 0xd0 : 0xc0);
        encoded_close(encoded, list, write_values(encoded, wide));
        break;
    }
    }
}

void sample_write(sample_t *sample, unsigned index)
{
    encoded_t *message = &sample->message;
    unsigned wide = index % 2;
    size_t opened;

    encoded_clear(message);
    encoded_section(message, 0x70);
    opened = encoded_open(message, wide ? 0xd0 : 0xc0);
    encoded_hex(message, "41 5004 7000002710 42 5203");
    encoded_close(message, opened, 5);
    write_annotations(message, 0x71, wide);
    write_annotations(message, 0x72, wide);

    sample->bare_start = message->size;
    encoded_section(message, 0x73);
    opened = encoded_open(message, wide ? 0xd0 : 0xc0);
    write_id(message, index);
    encoded_hex(message, "a0 01 75 a1 01 71 a1 01 73 40");
    write_id(message, index + 1);
    encoded_hex(message, "a3 01 74 40 40 83 0000018bcfe56800 a1 02 6731");
    encoded_close(message, opened, 11);
    sample->cut_ends[0] = message->size;

    encoded_section(message, 0x74);
    opened = encoded_open(message, wide ? 0xd1 : 0xc1);
    encoded_string(message, "JMSXDeliveryCount");
    encoded_hex(message, "40");
    encoded_string(message, "_AMQ_DUPL_ID");
    encoded_string(message, "duplicate-1");
    encoded_string(message, "traceparent");
    encoded_string(message, "00-0af7651916cd43dd8448eb211c80319c-"
                            "b7ad6b7169203331-01");
    encoded_close(message, opened, 6);
    sample->cut_ends[1] = message->size;

    write_body(message, index / 9, wide);
    sample->bare_end = message->size;
    sample->cut_ends[2] = message->size;
    write_annotations(message, 0x78, wide);
}

void sample_finish(sample_t *sample)
{
    encoded_finish(&sample->message);
}
