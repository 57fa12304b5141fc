/* safetensors_test.c - the reader takes nothing on trust, the writer leaves nothing behind. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/safetensors.h"

/* A file in memory: its header's text, and n zero bytes of data. */
typedef struct bytes {
    char *data;
    size_t n;
} bytes;

static bytes file_make(const char *header, size_t n_header, size_t n_data) {
    bytes f = {calloc(1, 8 + n_header + n_data), 8 + n_header + n_data};
    for (int i = 0; i < 8; i++) {
        f.data[i] = (char)(n_header >> (8 * i) & 0xff);
    }
    memcpy(f.data + 8, header, n_header);
    return f;
}

static void refused(const char *header, size_t n_data, const char *place, const char *words) {
    bytes f = file_make(header, strlen(header), n_data);
    safetensors_file *file = (safetensors_file *)&f;
    mmla_error err = {0};
    assert_int_not_equal(safetensors_parse(f.data, f.n, &file, &err), MMLA_OK);
    assert_null(file);
    assert_string_equal(err.argument, place);
    if (strstr(err.message, words) == NULL) {
        fail_msg("%s: not about \"%s\"", err.message, words);
    }
    free(f.data);
}

static void parse_legal_file_finds_everything(void **state) {
    (void)state;
    const char header[] = "{\"__metadata__\":{\"a\":\"b\",\"c\":\"\"},"
                          "\"x\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                          "\"none\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[24,24]},"
                          "\"y\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}   ";
    bytes f = file_make(header, strlen(header), 26);
    safetensors_file *file;
    mmla_error err;
    assert_int_equal(safetensors_parse(f.data, f.n, &file, &err), MMLA_OK);
    assert_int_equal(safetensors_count(file), 3);
    assert_int_equal(safetensors_meta_count(file), 2);
    assert_string_equal(safetensors_meta_find(file, "a"), "b");
    assert_string_equal(safetensors_meta_find(file, "c"), "");
    assert_null(safetensors_meta_find(file, "x"));
    const safetensors_tensor *x = safetensors_find(file, "x"), *y = safetensors_find(file, "y");
    assert_int_equal(x->dtype, SAFETENSORS_I32);
    assert_int_equal(x->rank, 2);
    assert_int_equal(x->shape[1], 3);
    assert_ptr_equal(x->data, f.data + 8 + strlen(header));
    assert_int_equal(y->n_bytes, 2);
    assert_int_equal(safetensors_find(file, "none")->n_bytes, 0);
    assert_null(safetensors_find(file, "z"));
    safetensors_destroy(file);
    free(f.data);
}

#define TENSOR(name, dtype, shape, begin, end)                                                   \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end \
    "]}"

static void parse_offsets_that_lie_are_refused(void **state) {
    (void)state;
    refused("{" TENSOR("x", "U8", "[4]", "1", "5") "}", 5, "x", "no gap");
    refused("{" TENSOR("x", "U8", "[4]", "0", "4") "," TENSOR("y", "U8", "[4]", "3", "7") "}", 7,
            "y", "no overlap");
    refused("{" TENSOR("y", "U8", "[4]", "4", "8") "," TENSOR("x", "U8", "[4]", "0", "4") "}", 8,
            "y", "in order");
    refused("{" TENSOR("x", "U8", "[4]", "0", "4") "}", 3, "x", "truncated");
    refused("{" TENSOR("x", "U8", "[4]", "0", "4") "}", 5, "data", "joined");
    refused("{" TENSOR("x", "U8", "[4]", "0", "-4") "}", 4, "x", "must end within");
    refused("{" TENSOR("x", "U8", "[4]", "0", "3") "}", 3, "x", "take 4");
    refused("{" TENSOR("x", "U8", "[4]", "0", "9223372036854775807") "}", 4, "x", "truncated");
    refused("{" TENSOR("x", "U8", "[4]", "0", "9223372036854775808") "}", 4, "header",
            "big integer");
    refused("{\"x\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, "x", "no data_offsets");
    refused("{" TENSOR("x", "U8", "[4]", "0", "4.0") "}", 4, "x", "no data_offsets");
}

static void parse_shapes_that_overflow_are_refused(void **state) {
    (void)state;
    refused("{" TENSOR("x", "I64", "[2147483648,2147483648]", "0", "8") "}", 8, "x", "64 bits");
    refused("{" TENSOR("x", "U8", "[4294967296,4294967296,0]", "0", "0") "}", 0, "x", "64 bits");
    refused("{" TENSOR("x", "U8", "[-1]", "0", "4") "}", 4, "x", "no whole number");
    refused("{" TENSOR("x", "U8", "[1.5]", "0", "4") "}", 4, "x", "no whole number");
    refused("{" TENSOR("x", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "x", "at most 8");
    refused("{" TENSOR("x", "U8", "4", "0", "4") "}", 4, "x", "no shape");
}

static void parse_unknown_dtype_is_refused(void **state) {
    (void)state;
    refused("{" TENSOR("x", "F4", "[4]", "0", "2") "}", 2, "x", "unknown");
    refused("{\"x\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "x", "no dtype");
    refused("{\"x\":{\"dtype\":7,\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "x", "no dtype");
    refused("{\"x\":[]}", 4, "x", "no object");
}

static void parse_json_that_is_not_is_refused(void **state) {
    (void)state;
    refused("", 0, "header", "expected");
    refused("[]", 0, "header", "object");
    refused("{", 0, "header", "byte 9");
    refused("{} x", 0, "header", "end of file");
    refused("{\"x\\uD800\":1}", 0, "header", "Unicode");
    refused("{\"\xff\":1}", 0, "header", "UTF-8");
    refused("{" TENSOR("x", "U8", "[1]", "0", "1") "," TENSOR("x", "U8", "[1]", "1", "2") "}", 2,
            "header", "duplicate");
}

static void parse_metadata_that_is_no_string_is_refused(void **state) {
    (void)state;
    refused("{\"__metadata__\":{\"scale\":0.5}}", 0, "__metadata__", "\"scale\" must be a string");
    refused("{\"__metadata__\":[]}", 0, "__metadata__", "object of strings");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "header", "duplicate");
}

static void parse_deep_json_is_refused(void **state) {
    (void)state;
    char *deep = malloc(1000001);
    memset(deep, '[', 1000000);
    deep[1000000] = '\0';
    refused(deep, 0, "header", "depth");
    free(deep);
}

static void parse_header_length_is_held_against_the_file(void **state) {
    (void)state;
    safetensors_file *file;
    mmla_error err;
    char head[64] = {0};
    for (size_t n = 0; n < 8; n++) {
        assert_int_equal(safetensors_parse(head, n, &file, &err), MMLA_E_VALUE);
        assert_non_null(strstr(err.message, "starts with 8"));
    }
    head[0] = 57; /* one more than there is */
    assert_int_equal(safetensors_parse(head, 64, &file, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "only 56 follow"));
    memset(head, 0xff, 8);
    assert_int_equal(safetensors_parse(head, 64, &file, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "18446744073709551615"));
    memset(head, 0, 8);
    head[7] = (char)0x80; /* 2^63 */
    assert_int_equal(safetensors_parse(head, 64, &file, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "9223372036854775808"));
}

static void align_copies_only_what_is_misaligned(void **state) {
    (void)state;
    const char header[] = "{" TENSOR("a", "U8", "[8]", "0", "8") "," /**/
        TENSOR("b", "U8", "[1]", "8", "9") "," TENSOR("c", "F32", "[2]", "9", "17") "}";
    bytes f = file_make(header, strlen(header), 17);
    for (int i = 0; i < 8; i++) {
        f.data[f.n - 8 + (size_t)i] = (char)i;
    }
    safetensors_file *file;
    mmla_error err;
    assert_int_equal(safetensors_parse(f.data, f.n, &file, &err), MMLA_OK);
    const safetensors_tensor *b = safetensors_find(file, "b"), *c = safetensors_find(file, "c");
    assert_ptr_equal(safetensors_align(file, b, 1), f.data + f.n - 9);
    /* Of two tensors one byte apart at least one is misaligned for 16. */
    const void *was = c->data;
    const void *at = safetensors_align(file, c, 16);
    assert_int_equal((uintptr_t)at % 16, 0);
    assert_ptr_equal(at, c->data);
    assert_memory_equal(at, f.data + f.n - 8, 8);
    if ((uintptr_t)was % 16 == 0) {
        assert_ptr_equal(at, was);
    }
    safetensors_destroy(file);
    free(f.data);
}

/* Files in `folder`. */
static int entries_count(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static void save_then_load_gives_the_same(void **state) {
    (void)state;
    char folder[] = "/tmp/safetensors_test_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    const int32_t numbers[] = {1, -2, 3};
    const safetensors_tensor tensors[] = {
        {"n", SAFETENSORS_I32, 1, {3}, sizeof numbers, numbers},
        {"e", SAFETENSORS_F32, 2, {0, 5}, 0, numbers},
    };
    const safetensors_meta meta[] = {{"k", "\"v\" \xc3\xa9"}};
    mmla_error err = {0};
    for (int i = 0; i < 2; i++) { /* the second time it replaces the file */
        assert_int_equal(safetensors_save(path, tensors, 2, meta, 1, &err), MMLA_OK);
    }
    assert_int_equal(entries_count(folder), 1);
    safetensors_file *file;
    assert_int_equal(safetensors_load(path, &file, &err), MMLA_OK);
    const safetensors_tensor *n = safetensors_find(file, "n");
    assert_int_equal((uintptr_t)n->data % 64, 0); /* so that nobody has to copy */
    assert_memory_equal(n->data, numbers, sizeof numbers);
    assert_int_equal(safetensors_find(file, "e")->shape[1], 5);
    assert_string_equal(safetensors_meta_find(file, "k"), meta[0].value);
    safetensors_destroy(file);
    unlink(path);
    rmdir(folder);
}

/* A writer that mistakes a device for a file renames over it, and as root that succeeds. So root
 * gets a device of its own in `folder`; NULL when that cannot be. */
static const char *full_device(const char *folder, char path[64]) {
    if (geteuid() != 0) {
        return "/dev/full";
    }
    snprintf(path, 64, "%s/full", folder);
    if (mknod(path, S_IFCHR | 0600, makedev(1, 7)) != 0) {
        return NULL;
    }
    FILE *file = fopen(path, "w"); /* refused where the file system has no devices */
    if (file != NULL) {
        fclose(file);
    }
    return file != NULL ? path : NULL;
}

static void save_to_full_device_fails_and_keeps_the_device(void **state) {
    (void)state;
    char folder[] = "/tmp/safetensors_test_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    const char *device = full_device(folder, path);
    const char byte = 0;
    const safetensors_tensor tensor = {"n", SAFETENSORS_U8, 1, {1}, 1, &byte};
    mmla_error err = {0};
    if (device != NULL) {
        const int n = entries_count(folder);
        assert_int_equal(safetensors_save(device, &tensor, 1, NULL, 0, &err), MMLA_E_VALUE);
        assert_non_null(strstr(err.message, "No space left"));
        struct stat st;
        assert_int_equal(stat(device, &st), 0);
        assert_true(S_ISCHR(st.st_mode));
        assert_int_equal(entries_count(folder), n);
    }
    unlink(path);
    rmdir(folder);
    if (device == NULL) {
        skip();
    }
}

/* Jansson's allocator, of which number fail_at fails (1 is the first; 0 none). */
static int n_allocs, fail_at;

static void *failing_malloc(size_t n) {
    return ++n_allocs == fail_at ? NULL : malloc(n);
}

static void save_without_memory_for_the_header_writes_nothing(void **state) {
    (void)state;
    char folder[] = "/tmp/safetensors_test_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    const int32_t numbers[] = {1, -2, 3};
    const safetensors_tensor tensor = {"n", SAFETENSORS_I32, 1, {3}, sizeof numbers, numbers};
    const safetensors_meta meta[] = {{"op", "text"}};
    json_set_alloc_funcs(failing_malloc, free);
    for (fail_at = n_allocs = 1; fail_at <= n_allocs; fail_at++) {
        mmla_error err = {0};
        n_allocs = 0;
        if (safetensors_save(path, &tensor, 1, meta, 1, &err) != MMLA_OK) {
            assert_string_not_equal(err.message, "");
            assert_int_equal(entries_count(folder), 0);
            continue;
        }
        safetensors_file *file; /* an allocation that Jansson could do without */
        json_set_alloc_funcs(malloc, free);
        assert_int_equal(safetensors_load(path, &file, &err), MMLA_OK);
        assert_int_equal(safetensors_find(file, "n")->n_bytes, sizeof numbers);
        assert_string_equal(safetensors_meta_find(file, "op"), "text");
        safetensors_destroy(file);
        json_set_alloc_funcs(failing_malloc, free);
        unlink(path);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(fail_at > 10);
    rmdir(folder);
}

static void save_of_a_text_that_is_no_utf8_writes_nothing(void **state) {
    (void)state;
    char folder[] = "/tmp/safetensors_test_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    const safetensors_meta bad_value[] = {{"op", "\xff"}}, bad_key[] = {{"\xff", "x"}};
    mmla_error err = {0};
    assert_int_not_equal(safetensors_save(path, NULL, 0, bad_value, 1, &err), MMLA_OK);
    assert_int_not_equal(safetensors_save(path, NULL, 0, bad_key, 1, &err), MMLA_OK);
    assert_int_equal(entries_count(folder), 0);
    rmdir(folder);
}

static void save_to_a_pipe_writes_into_it(void **state) {
    (void)state;
    char folder[] = "/tmp/safetensors_test_XXXXXX", path[64], bytes_read[512];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    const int fd = open(path, O_RDWR | O_NONBLOCK); /* a reader, so that the writer does not wait */
    const char byte = 42;
    const safetensors_tensor tensor = {"n", SAFETENSORS_U8, 1, {1}, 1, &byte};
    mmla_error err = {0};
    assert_int_equal(safetensors_save(path, &tensor, 1, NULL, 0, &err), MMLA_OK);
    const ssize_t n = read(fd, bytes_read, sizeof bytes_read);
    assert_true(n > 64);
    assert_int_equal(bytes_read[n - 1], 42);
    assert_int_equal(entries_count(folder), 1);
    close(fd);
    unlink(path);
    rmdir(folder);
}

static void save_into_missing_folder_fails(void **state) {
    (void)state;
    const char byte = 0;
    const safetensors_tensor tensor = {"n", SAFETENSORS_U8, 1, {1}, 1, &byte};
    mmla_error err = {0};
    assert_int_equal(safetensors_save("/nonexistent/out", &tensor, 1, NULL, 0, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "No such file"));
}

static void save_behind_a_link_keeps_the_link(void **state) {
    (void)state;
    char folder[] = "/tmp/safetensors_test_XXXXXX", path[64], target[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/link", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    fclose(fopen(target, "w"));
    assert_int_equal(symlink("target", path), 0);
    const char byte = 7;
    const safetensors_tensor tensor = {"n", SAFETENSORS_U8, 1, {1}, 1, &byte};
    mmla_error err = {0};
    assert_int_equal(safetensors_save(path, &tensor, 1, NULL, 0, &err), MMLA_OK);
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(target, &st), 0);
    assert_true(st.st_size > 0);
    unlink(path);
    unlink(target);
    rmdir(folder);
}

static void load_what_is_no_file_says_so(void **state) {
    (void)state;
    safetensors_file *file;
    mmla_error err;
    assert_int_equal(safetensors_load("/tmp", &file, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "directory"));
    assert_int_equal(safetensors_load("/dev/null", &file, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "regular file"));
    assert_int_equal(safetensors_load("/nonexistent", &file, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "No such file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_legal_file_finds_everything),
        cmocka_unit_test(parse_offsets_that_lie_are_refused),
        cmocka_unit_test(parse_shapes_that_overflow_are_refused),
        cmocka_unit_test(parse_unknown_dtype_is_refused),
        cmocka_unit_test(parse_json_that_is_not_is_refused),
        cmocka_unit_test(parse_metadata_that_is_no_string_is_refused),
        cmocka_unit_test(parse_deep_json_is_refused),
        cmocka_unit_test(parse_header_length_is_held_against_the_file),
        cmocka_unit_test(align_copies_only_what_is_misaligned),
        cmocka_unit_test(save_then_load_gives_the_same),
        cmocka_unit_test(save_to_full_device_fails_and_keeps_the_device),
        cmocka_unit_test(save_without_memory_for_the_header_writes_nothing),
        cmocka_unit_test(save_of_a_text_that_is_no_utf8_writes_nothing),
        cmocka_unit_test(save_to_a_pipe_writes_into_it),
        cmocka_unit_test(save_into_missing_folder_fails),
        cmocka_unit_test(save_behind_a_link_keeps_the_link),
        cmocka_unit_test(load_what_is_no_file_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
