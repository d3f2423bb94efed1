/* How weir doctor reports its findings. */
#include "host_backend/config/status_text.h"
#include "tools/command.h"
#include "tools/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int n_problems;
static int n_warnings;
static bool as_json;

void weir_doctor_use_json(void)
{
    as_json = true;
}

static void tell(const char *result, const char *remedy, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static void tell(const char *result, const char *remedy, const char *format, va_list args)
{
    struct weir_status_check row = {.result = ""};
    snprintf(row.result, sizeof row.result, "%s", result);
    snprintf(row.remedy, sizeof row.remedy, "%s", remedy);
    vsnprintf(row.text, sizeof row.text, format, args);
    n_problems += strcmp(result, "problem") == 0;
    n_warnings += strcmp(result, "warning") == 0;
    if (as_json) {
        weir_status_text_check(stdout, &row);
        return;
    }
    printf("%-9s%s\n", strcmp(result, "way") == 0 ? "" : result, row.text);
    if (*remedy) {
        printf("           -> %s\n", row.remedy);
    }
}

void weir_doctor_ok(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell("ok", "", format, args);
    va_end(args);
}

void weir_doctor_way(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell("way", "", format, args);
    va_end(args);
}

void weir_doctor_mend(const char *kind, const char *remedy, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(kind, remedy, format, args);
    va_end(args);
}

void weir_doctor_mend_at(const char *kind, const char *remedy, const char *where,
                         const char *format, ...)
{
    char text[256];
    va_list args;
    snprintf(text, sizeof text, "%s %s", remedy, where);
    va_start(args, format);
    tell(kind, text, format, args);
    va_end(args);
}

int weir_doctor_end(void)
{
    if (!as_json && !n_problems && n_warnings) {
        printf("No problem, %d warning%s.\n", n_warnings, n_warnings == 1 ? "" : "s");
    } else if (!as_json) {
        printf("%s\n", n_problems ? "There are problems." : "All is well.");
    }
    return n_problems ? WEIR_EXIT_FAILED : WEIR_EXIT_OK;
}
