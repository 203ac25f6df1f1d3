/*
 * Keeps what a power loss would leave. Preloaded into a program, it makes a whole copy of each regular file
 * under DUR_DIR at each fsync or fdatasync of it, under the same name below DUR_COPY_DIR.
 *
 * - The copy is taken after the sync and before the program hears of it: it holds at least what was synced.
 * - It is renamed into place, so a SIGKILL at any point leaves the former copy or the new one.
 * - Sync and copy are one step between threads and processes (a lock file), so an older copy never replaces
 *   a newer one.
 * - A synced folder makes the creations, unlinks and renames in it last: a new file that was not synced itself
 *   is there and empty, copies of names that are gone go too, and a renamed file has its copy under the new
 *   name. Otherwise a new file is gone, an unlinked file comes back, and a rename has not happened. A file
 *   that was renamed before it was synced is then empty, as on real disks.
 * - A rename is noted before it is made, with the file's inode: one that a SIGKILL prevented is not found when
 *   the folder is synced.
 * - A rename between folders lasts at the new name from the sync of the new folder on, and the old name is gone from
 *   the sync of the old folder on: with one of the two, a power loss leaves both names or none.
 *
 * Not modelled: new folders (they are there), renames of folders, exchanges, O_SYNC, sync, syncfs, programs that
 * make the system call themselves. sync_file_range and msync are no syncs, rightly.
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

/* Copied: a program that changes its title, as redis-server does, writes over its environment. */
static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value ? strdup(value) : NULL;
}

__attribute__((constructor)) static void start(void)
{
    folder = setting("DUR_DIR");
    copies = setting("DUR_COPY_DIR");
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

/* Without being noticed by our own rename. */
static int rename_file(const char *from, const char *to)
{
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
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
    if (fchmod(to, mode & 07777) || close(to) || rename_file(unfinished, copy))
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

/* The names that are new in a synced folder are there to stay; of what they hold nothing was synced. */
static void keep_created(int fd, const char *name)
{
    char copy[PATH_MAX];
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = again < 0 ? NULL : fdopendir(again);
    if (!listing)
        give_up("list a folder");
    for (struct dirent *entry; (entry = readdir(listing));) {
        struct stat status;
        if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode))
            continue;
        format(copy, "%s/files%s/%s", copies, name, entry->d_name);
        make_folders(copy);
        int empty = open(copy, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, status.st_mode & 07777);
        if (empty < 0 && errno != EEXIST)
            give_up(copy);
        if (empty >= 0)
            close(empty);
    }
    closedir(listing);
}

/* The renames in a synced folder have happened, unless the name is another file's by now. */
static void keep_renamed(int fd, const char *name)
{
    char noted[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
    format(noted, "%s/renamed%s", copies, name);
    DIR *listing = opendir(noted);
    if (!listing)
        return;
    for (struct dirent *entry; (entry = readdir(listing));) {
        char *mark = strrchr(entry->d_name, '#');
        if (!mark)
            continue;
        format(from, "%s/%s", noted, entry->d_name);
        unsigned long inode = strtoul(mark + 1, NULL, 10);
        *mark = 0;
        format(to, "%s/files%s/%s", copies, name, entry->d_name);
        make_folders(to);
        struct stat status;
        int is_here = fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_ino == inode;
        if (is_here ? rename_file(from, to) : unlink(from))
            give_up(from);
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
    else if (S_ISDIR(status.st_mode)) {
        keep_renamed(fd, name);
        keep_created(fd, name);
        forget_unlinked(fd, name);
    }
}

static int take_turn(void)
{
    char path[PATH_MAX];
    format(path, "%s/.turn", copies);
    int turn = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (turn < 0 || flock(turn, LOCK_EX))
        give_up(path);
    return turn;
}

static int sync_and_keep(long call, int fd)
{
    if (!folder || !copies)
        return syscall(call, fd);
    int turn = take_turn();
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

/* The folder of `path` as a path below the folder, and its last part; 0 if it is elsewhere. */
static int split(int at, const char *path, char *place_of_folder, const char **last)
{
    char above[PATH_MAX];
    const char *slash = strrchr(path, '/');
    format(above, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    *last = slash ? slash + 1 : path;
    int fd = openat(at, above, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    char full[PATH_MAX];
    const char *name = place(fd, full);
    if (name)
        format(place_of_folder, "%s", name);
    close(fd);
    return name != NULL;
}

/* What the new name will hold once its folder is synced: what the old name held when it was last synced. */
static void note_rename(int from_at, const char *from, int to_at, const char *to)
{
    char from_folder[PATH_MAX], to_folder[PATH_MAX], copy[PATH_MAX], earlier[PATH_MAX], note[PATH_MAX];
    const char *from_last, *to_last;
    struct stat status;
    if (!split(from_at, from, from_folder, &from_last) || !split(to_at, to, to_folder, &to_last) ||
        fstatat(from_at, from, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode))
        return;
    unsigned long inode = status.st_ino;
    format(copy, "%s/files%s/%s", copies, from_folder, from_last);
    format(earlier, "%s/renamed%s/%s#%lu", copies, from_folder, from_last, inode);
    format(note, "%s/renamed%s/%s#%lu", copies, to_folder, to_last, inode);
    make_folders(note);
    if (unlink(note) && errno != ENOENT)
        give_up(note);
    if (link(earlier, note) == 0 || link(copy, note) == 0)
        return;
    int empty = errno == ENOENT ? open(note, O_CREAT | O_WRONLY | O_CLOEXEC, status.st_mode & 07777) : -1;
    if (empty < 0)
        give_up(note);
    close(empty);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned int flags)
{
    if (!folder || !copies)
        return syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    int turn = take_turn();
    note_rename(from_at, from, to_at, to);
    int result = syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    int why = errno;
    close(turn);
    errno = why;
    return result;
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    return renameat2(from_at, from, to_at, to, 0);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}
