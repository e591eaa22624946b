#include "fr-common.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rec-version.h"

static const char *tool_name = "fr";

void fr_init(const char *tool)
{
    tool_name = tool;
    signal(SIGPIPE, SIG_DFL);
}

static void print_error(const char *path, const char *text)
{
    char clean_path[4096], clean_text[1024];
    fflush(stdout); /* keeps the order when both go to one place */
    fr_clean(clean_text, sizeof(clean_text), text);
    if (path && *path)
        fprintf(stderr, "%s: %s: %s\n", tool_name, fr_clean(clean_path, sizeof(clean_path), path),
                clean_text);
    else
        fprintf(stderr, "%s: %s\n", tool_name, clean_text);
}

int fr_error(const struct rec_error *err)
{
    print_error(err->path, err->text[0] ? err->text : rec_code_name(err->code));
    return FR_EXIT_ERROR;
}

int fr_errorf(const char *path, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    print_error(path, text);
    return FR_EXIT_ERROR;
}

int fr_usage_error(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    print_error(NULL, text);
    fprintf(stderr, "Try '%s --help'.\n", tool_name);
    return FR_EXIT_ERROR;
}

int fr_bad_option(int c, char *const *argv)
{
    if (c == ':')
        return fr_usage_error("%s needs an argument", argv[optind - 1]);
    /* For a long option optopt is 0, or its number when it takes no argument. */
    if (optopt && optopt < 256)
        return fr_usage_error("unknown option -%c", optopt);
    return fr_usage_error("unknown option %s", argv[optind - 1]);
}

int fr_version(void)
{
    printf("%s (flight-recorder) %s\n", tool_name, REC_PROJECT_VERSION);
    return 0;
}

int fr_finish(int status)
{
    errno = 0;
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0)
        failed = true;
    if (!failed)
        return status;
    return fr_errorf("standard output", "%s", errno ? strerror(errno) : "write error");
}

bool fr_color(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

int fr_columns(FILE *stream)
{
    uint64_t columns = 0;
    const char *text = getenv("COLUMNS");
    if (text && fr_parse_u64(text, 10000, &columns) && columns > 0)
        return (int)columns;
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 0;
}

const char *fr_live_dir(const char *option)
{
    if (option)
        return option;
    const char *dir = getenv("FREC_LIVE_DIR");
    return dir && *dir ? dir : "/dev/shm";
}

bool fr_parse_u64(const char *text, uint64_t max, uint64_t *value)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || number > max)
        return false;
    *value = number;
    return true;
}
