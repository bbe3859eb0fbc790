#include "execshim/units.h"

#include <criterion/criterion.h>

Test(units, durations)
{
	static const struct {
		const char *text;
		uint64_t ms; /* 0: refused */
	} rows[] = {{"1", 1000}, {"90", 90000}, {"1.5s", 1500}, {"200ms", 200}, {"2m", 120000},
	    {"1h", 3600000}, {"1d", 86400000}, {"0.001", 1}, {"366d", 31622400000}, {"", 0},
	    {"0", 0}, {"-1", 0}, {"+1", 0}, {"1 s", 0}, {"1x", 0}, {"inf", 0}, {"nan", 0},
	    {"0x10", 0}, {"1e3", 0}, {"1.", 0}, {".5", 0}, {"367d", 0}, {"0.1ms", 0},
	    {"99999999999999999999", 0}, {"1ss", 0}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t ms = 0;
		bool ok = pai_duration_parse(rows[i].text, &ms);

		cr_assert_eq(ok, rows[i].ms != 0, "'%s'", rows[i].text);
		cr_assert_eq(ms, rows[i].ms, "'%s': %lu", rows[i].text, (unsigned long)ms);
	}
}

Test(units, sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} rows[] = {{"1", 1}, {"4096", 4096}, {"64K", 65536}, {"64k", 65536}, {"10M", 10u << 20},
	    {"1G", 1u << 30}, {"1GiB", 1u << 30}, {"1GB", 1u << 30}, {"2T", 2ull << 40}, {"5B", 5},
	    {"1048576T", 1ull << 60}, {"", 0}, {"0", 0}, {"0K", 0}, {"-1", 0}, {" 1", 0},
	    {"1.5M", 0}, {"1X", 0}, {"1Gi", 0}, {"1KK", 0}, {"K", 0}, {"1048577T", 0},
	    {"18446744073709551617", 0}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t bytes = 0;
		bool ok = pai_size_parse(rows[i].text, &bytes);

		cr_assert_eq(ok, rows[i].bytes != 0, "'%s'", rows[i].text);
		cr_assert_eq(bytes, rows[i].bytes, "'%s': %lu", rows[i].text, (unsigned long)bytes);
	}
}
