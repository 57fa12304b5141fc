/* file_save.c - a temporary file beside the other, and a rename. */
#include "model/file_save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { TEMPORARY_TRIES = 100 };

static bool write_all(int fd, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n > 0) {
        const ssize_t written = write(fd, p, n);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return false;
        }
        p += written;
        n -= (size_t)written;
    }
    return true;
}

/* Writes everything and closes fd. errno tells why not. */
static bool parts_write(int fd, const file_part *parts, int32_t n_parts) {
    bool ok = true;
    for (int32_t i = 0; i < n_parts && ok; i++) {
        ok = write_all(fd, parts[i].data, parts[i].n_bytes);
    }
    const int saved = errno;
    if (close(fd) != 0 && ok) { /* some file systems report a full disk only here */
        return false;
    }
    errno = saved;
    return ok;
}

/* A new file in path's folder, whose name goes to *name. Names carry the process id and a counter;
 * O_EXCL decides. They do not carry path's own name, which may be as long as a name can be. The mode
 * is what a plain open would have given, or that of the file to be replaced. */
static int temporary_open(const char *path, char **name) {
    const char *slash = strrchr(path, '/');
    const int n_folder = slash != NULL ? (int)(slash - path) + 1 : 0;
    const size_t n = (size_t)n_folder + 48;
    *name = malloc(n);
    for (int i = 0; *name != NULL && i < TEMPORARY_TRIES; i++) {
        snprintf(*name, n, "%.*s.megamla-%ld-%d.tmp", n_folder, path, (long)getpid(), i);
        const int fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        struct stat st;
        if (fd >= 0 && stat(path, &st) == 0 && fchmod(fd, st.st_mode & 07777) != 0) {
            return fd; /* where the mode cannot be kept, the plain one must do */
        }
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static mmla_status cannot(mmla_error *err, const char *what) {
    return mmla_error_set(err, MMLA_E_VALUE, "", "cannot be %s: %s", what, strerror(errno));
}

static mmla_status
replace(const char *path, const file_part *parts, int32_t n_parts, mmla_error *err) {
    char *name = NULL;
    const int fd = temporary_open(path, &name);
    mmla_status status = MMLA_OK;
    if (fd < 0) {
        status = cannot(err, "created");
    } else if (!parts_write(fd, parts, n_parts)) {
        status = cannot(err, "written");
    } else if (rename(name, path) != 0) {
        status = cannot(err, "replaced");
    }
    if (fd >= 0 && status != MMLA_OK) {
        unlink(name);
    }
    free(name);
    return status;
}

mmla_status file_save(const char *path, const file_part *parts, int32_t n_parts, mmla_error *err) {
    struct stat st;
    mmla_status status = MMLA_OK;
    char *real = realpath(path, NULL); /* behind a symbolic link, replace what it points to */
    if (real == NULL && lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        return mmla_error_set(err, MMLA_E_VALUE, "",
                              "is a symbolic link to nothing; write to the file itself");
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            status = cannot(err, "opened");
        } else if (!parts_write(fd, parts, n_parts)) {
            status = cannot(err, "written");
        }
    } else {
        status = replace(real != NULL ? real : path, parts, n_parts, err);
    }
    free(real);
    return status;
}
