#include <idem/version.h>

#include "support.h"

#include <check.h>
#include <stdio.h>

START_TEST(library_and_headers_say_the_same_version)
{
    char expected[32];

    snprintf(expected, sizeof expected, "%d.%d.%d", IDEM_VERSION_MAJOR,
             IDEM_VERSION_MINOR, IDEM_VERSION_PATCH);
    ck_assert_str_eq(IDEM_VERSION, expected);
    ck_assert_str_eq(idem_version(), IDEM_VERSION);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("version");
    TCase *tcase = tcase_create("version");

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, library_and_headers_say_the_same_version);
    return test_run(suite);
}
