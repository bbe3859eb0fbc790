#include <criterion/criterion.h>
#include <string.h>

#include "execshim/filename.h"
#include "providers/base/auto.h"
#include "providers/base/printable.h"

static const struct {
	const char *name, *wanted;
} rows[] = {
    {"report.pdf", "report.pdf"},
    {"Ünïcode 日本.txt", "Ünïcode 日本.txt"},
    {"it's \"odd\" $(x) `y` *.txt", "it's \"odd\" $(x) `y` *.txt"},
    {"", "file"},
    {".", "file"},
    {"..", "file"},
    {" . ", "file"},
    {"../../etc/passwd", "_.._.._etc_passwd"},
    {"/etc/passwd", "_etc_passwd"},
    {"a\\b", "a_b"},
    {".bashrc", "_.bashrc"},
    {"-rf", "_-rf"},
    {"~root", "_~root"},
    {"  a  ", "a"},
    {"a. . .", "a"},
    {"a\nb\tc\x1b[31m\x7f", "a_b_c_[31m_"},
    {"a\xff\xfe.txt", "a__.txt"},
    {"\xc0\xaf", "__"},
    {"evil\u202etxt.exe", "evil_txt.exe"},
    {"a\u200bb\ufeff", "a_b_"},
    {"a\xc2\x85"
     "b",
	"a_b"},
    {"line\u2028end", "line_end"},
};

Test(filename, hostile_names_become_safe_ones)
{
	char out[PAI_FILENAME_MAX + 1];

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		(void)pai_filename(rows[i].name, strlen(rows[i].name), out);
		cr_assert_str_eq(out, rows[i].wanted, "'%s': '%s'", rows[i].name, out);
	}
	cr_assert_str_eq(pai_filename("a\0b", 3, out), "a_b");
}

static void check(const char *name, size_t len)
{
	char out[PAI_FILENAME_MAX + 1], again[PAI_FILENAME_MAX + 1];

	(void)pai_filename(name, len, out);
	cr_assert(*out && strlen(out) <= PAI_FILENAME_MAX);
	cr_assert(pai_utf8_valid(out, strlen(out)), "%s", pai_printable(out));
	cr_assert(!strchr(out, '/') && *out != '.' && *out != '-');
	cr_assert_str_eq(pai_filename(out, strlen(out), again), out); /* safe already */
}

Test(filename, long_ones_keep_their_ending)
{
	char name[1000], out[PAI_FILENAME_MAX + 1];

	memset(name, 'x', sizeof(name));
	memcpy(name + 900, ".tar.gz", 8);
	(void)pai_filename(name, strlen(name), out);
	cr_assert_eq(strlen(out), PAI_FILENAME_MAX);
	cr_assert_str_eq(out + PAI_FILENAME_MAX - 3, ".gz");
	for (size_t i = 0; i + 3 < sizeof(name); i += 3) {
		memcpy(name + i, "\u65e5", 3);
	}
	for (size_t len = 190; len < 999; len++) {
		check(name, len);
	}
	name[500] = '.';
	check(name, 998);
}

Test(filename, any_bytes_give_a_name)
{
	unsigned seed = 7;

	for (int i = 0; i < 20000; i++) {
		char name[300];
		size_t len = (size_t)rand_r(&seed) % sizeof(name);

		for (size_t at = 0; at < len; at++) {
			name[at] = (char)rand_r(&seed);
		}
		check(name, len);
	}
}
