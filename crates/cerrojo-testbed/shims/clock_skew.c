/*
 * A wall clock that is wrong. Preloaded into a program, it adds the signed 64-bit nanoseconds at the start of
 * the file SKEW_FILE to every reading of the wall clock; the file is mapped, so it may change meanwhile.
 * All other clocks stay as they are. A program that makes the system call itself is not reached.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL

static const int64_t *skew_ns;

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("SKEW_FILE");
    if (!path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *page = mmap(NULL, sizeof *skew_ns, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || page == MAP_FAILED) {
        perror("clock_skew shim: SKEW_FILE");
        abort();
    }
    close(fd);
    skew_ns = page;
}

static void shift(struct timespec *time)
{
    int64_t skew = skew_ns ? __atomic_load_n(skew_ns, __ATOMIC_RELAXED) : 0;
    int64_t ns = time->tv_nsec + skew % SECOND_NS;
    time->tv_sec += skew / SECOND_NS + (ns >= SECOND_NS) - (ns < 0);
    time->tv_nsec = ns + SECOND_NS * ((ns < 0) - (ns >= SECOND_NS));
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
        shift(time);
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *copy)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (copy)
        *copy = now.tv_sec;
    return now.tv_sec;
}
