/*
 * Keeps what a power loss would leave. Preloaded into a program, it makes a whole copy of each regular file
 * under DUR_DIR at each fsync or fdatasync of it, under the same name below DUR_COPY_DIR.
 *
 * - The copy is taken after the sync and before the program hears of it: it holds at least what was synced.
 * - It is renamed into place, so a SIGKILL at any point leaves the former copy or the new one.
 * - Sync and copy are one step between threads and processes (a lock file), so an older copy never replaces
 *   a newer one.
 * - A synced folder makes the unlinks in it last: copies of names that are gone go too. Otherwise an
 *   unlinked file comes back.
 *
 * Not modelled: renames (a renamed file counts as unsynced under its new name), O_SYNC, sync, syncfs,
 * programs that make the system call themselves. sync_file_range and msync are no syncs, rightly.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *folder, *copies;

__attribute__((constructor)) static void start(void)
{
    folder = getenv("DUR_DIR");
    copies = getenv("DUR_COPY_DIR");
}

/* A copy that silently fails would blame the program under test. */
static void give_up(const char *what)
{
    fprintf(stderr, "power_loss shim: %s: %s\n", what, strerror(errno));
    abort();
}

static void format(char *to, const char *how, ...)
{
    va_list parts;
    va_start(parts, how);
    int length = vsnprintf(to, PATH_MAX, how, parts);
    va_end(parts);
    if (length < 0 || length >= PATH_MAX) {
        errno = ENAMETOOLONG;
        give_up("path");
    }
}

/* The path of fd below the folder, in `path`; NULL if it is elsewhere. "" is the folder itself. */
static const char *place(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    path[length] = 0;
    size_t top = strlen(folder);
    if (strncmp(path, folder, top) != 0 || (path[top] != '/' && path[top] != 0))
        return NULL;
    return path + top;
}

static void make_folders(const char *path)
{
    char part[PATH_MAX];
    format(part, "%s", path);
    for (char *slash = part + strlen(copies) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(part, 0700) && errno != EEXIST)
            give_up(part);
        *slash = '/';
    }
}

static void write_all(int to, const char *bytes, ssize_t count)
{
    while (count > 0) {
        ssize_t written = write(to, bytes, count);
        if (written < 0)
            give_up("write copy");
        bytes += written;
        count -= written;
    }
}

/*
 * Reads through the program's own descriptor: opening and closing another would drop the POSIX locks that
 * this process has on the file. Only a descriptor that cannot read is opened anew.
 */
static void copy_bytes(int fd, int to)
{
    static __thread char bytes[1 << 16];
    int from = fd;
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if ((from = open(link, O_RDONLY | O_CLOEXEC)) < 0)
            give_up("open for copying");
    }
    off_t at = 0;
    ssize_t count;
    while ((count = pread(from, bytes, sizeof bytes, at)) > 0) {
        write_all(to, bytes, count);
        at += count;
    }
    if (count < 0)
        give_up("read for copying");
    if (from != fd)
        close(from);
}

static void keep_file(int fd, const char *name, mode_t mode)
{
    char unfinished[PATH_MAX], copy[PATH_MAX];
    format(unfinished, "%s/.unfinished", copies);
    format(copy, "%s/files%s", copies, name);
    make_folders(copy);
    int to = open(unfinished, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (to < 0)
        give_up(unfinished);
    copy_bytes(fd, to);
    if (fchmod(to, mode & 07777) || close(to) || rename(unfinished, copy))
        give_up(copy);
}

/* The names that are gone from a synced folder are gone for good. */
static void forget_unlinked(int fd, const char *name)
{
    char kept[PATH_MAX], copy[PATH_MAX];
    format(kept, "%s/files%s", copies, name);
    DIR *listing = opendir(kept);
    if (!listing)
        return;
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (entry->d_type == DT_DIR || faccessat(fd, entry->d_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        format(copy, "%s/%s", kept, entry->d_name);
        if (unlink(copy))
            give_up(copy);
    }
    closedir(listing);
}

static void keep(int fd)
{
    char path[PATH_MAX];
    struct stat status;
    const char *name = place(fd, path);
    if (!name || fstat(fd, &status) || status.st_nlink == 0)
        return;
    if (S_ISREG(status.st_mode))
        keep_file(fd, name, status.st_mode);
    else if (S_ISDIR(status.st_mode))
        forget_unlinked(fd, name);
}

static int sync_and_keep(long call, int fd)
{
    if (!folder || !copies)
        return syscall(call, fd);
    char path[PATH_MAX];
    format(path, "%s/.turn", copies);
    int turn = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (turn < 0 || flock(turn, LOCK_EX))
        give_up(path);
    int result = syscall(call, fd);
    int why = errno;
    if (result == 0)
        keep(fd);
    close(turn);
    errno = why;
    return result;
}

int fsync(int fd)
{
    return sync_and_keep(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_and_keep(SYS_fdatasync, fd);
}
