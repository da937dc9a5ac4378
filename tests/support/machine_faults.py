"""A machine whose clock is stepped and whose disk fails, under a daemon as shipped.

A small library of C is compiled and loaded before libc into the daemon and what it
starts. It reads one page that the test writes at any time: how far the clocks are off,
and which files cannot be written or synced. Nothing of the package knows of it.
"""

from __future__ import annotations

import contextlib
import mmap
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")
COMPILE_SECONDS = 60.0
VARIABLE = "FAULT_PAGE"
PAGE_BYTES = 4_096
NS_PER_S = 1_000_000_000

WALL_SHIFT, STEADY_SHIFT, WALL_READS = 0, 8, 16
SYNC_ERROR, WRITE_ERROR, PREFIX = 24, 28, 64
"""Places in the page, as `struct fault_page` has them."""

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL
#define YEAR_2001 1000000000LL /* later deadlines are those of the wall clock */

struct fault_page {
    volatile int64_t wall_shift_ns;
    volatile int64_t steady_shift_ns;
    volatile int64_t wall_reads;
    volatile int32_t sync_error;
    volatile int32_t write_error;
    char reserved[32];
    char prefix[1024];
};

static struct fault_page nothing;
static struct fault_page *page = &nothing;

__attribute__((constructor)) static void open_page(void) {
    const char *path = getenv("FAULT_PAGE");
    if (path == NULL)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *found = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED)
        page = found;
}

static void *next(void **known, const char *name) {
    if (*known == NULL)
        *known = dlsym(RTLD_NEXT, name);
    return *known;
}

static int64_t shift_of(clockid_t clock) {
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return page->wall_shift_ns;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        return page->steady_shift_ns;
    default:
        return 0;
    }
}

static void add(struct timespec *moment, int64_t ns) {
    int64_t left = moment->tv_nsec + ns % NS;
    moment->tv_sec += ns / NS + (left >= NS) - (left < 0);
    moment->tv_nsec = left + (left < 0) * NS - (left >= NS) * NS;
}

/* What a deadline that was made of a shifted clock means to the kernel. */
static const struct timespec *meant(
    const struct timespec *deadline, clockid_t clock, struct timespec *room) {
    if (deadline == NULL)
        return NULL;
    *room = *deadline;
    add(room, -shift_of(clock));
    return room;
}

static clockid_t guessed(const struct timespec *deadline) {
    int is_wall = deadline != NULL && deadline->tv_sec > YEAR_2001;
    return is_wall ? CLOCK_REALTIME : CLOCK_MONOTONIC;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static void *known;
    int (*real)(clockid_t, struct timespec *) = next(&known, "clock_gettime");
    int result = real(clock, now);
    if (result == 0) {
        add(now, shift_of(clock));
        if (clock == CLOCK_REALTIME)
            __atomic_add_fetch(&page->wall_reads, 1, __ATOMIC_RELAXED);
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (now != NULL)
        *now = fine.tv_sec;
    return fine.tv_sec;
}

int clock_nanosleep(
    clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    static void *known;
    struct timespec room;
    int (*real)(clockid_t, int, const struct timespec *, struct timespec *) =
        next(&known, "clock_nanosleep");
    if (flags & TIMER_ABSTIME)
        until = meant(until, clock, &room);
    return real(clock, flags, until, left);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static void *known;
    struct timespec room;
    int (*real)(sem_t *, const struct timespec *) = next(&known, "sem_timedwait");
    return real(semaphore, meant(until, CLOCK_REALTIME, &room));
}

int sem_clockwait(
    sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until) {
    static void *known;
    struct timespec room;
    int (*real)(sem_t *, clockid_t, const struct timespec *) =
        next(&known, "sem_clockwait");
    return real(semaphore, clock, meant(until, clock, &room));
}

int pthread_cond_timedwait(
    pthread_cond_t *restrict condition,
    pthread_mutex_t *restrict mutex,
    const struct timespec *restrict until) {
    static void *known;
    struct timespec room;
    int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
        next(&known, "pthread_cond_timedwait");
    return real(condition, mutex, meant(until, guessed(until), &room));
}

int pthread_cond_clockwait(
    pthread_cond_t *restrict condition,
    pthread_mutex_t *restrict mutex,
    clockid_t clock,
    const struct timespec *restrict until) {
    static void *known;
    struct timespec room;
    int (*real)(
        pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) =
        next(&known, "pthread_cond_clockwait");
    return real(condition, mutex, clock, meant(until, clock, &room));
}

/* Whether an operation on a file is to fail; then errno says how. */
static int fails(int fd, int error) {
    char link[64], path[1024];
    if (error == 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (strncmp(path, page->prefix, strlen(page->prefix)) != 0)
        return 0;
    errno = error;
    return 1;
}

int fsync(int fd) {
    static void *known;
    int (*real)(int) = next(&known, "fsync");
    return fails(fd, page->sync_error) ? -1 : real(fd);
}

int fdatasync(int fd) {
    static void *known;
    int (*real)(int) = next(&known, "fdatasync");
    return fails(fd, page->sync_error) ? -1 : real(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
    static void *known;
    ssize_t (*real)(int, const void *, size_t) = next(&known, "write");
    return fails(fd, page->write_error) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    static void *known;
    ssize_t (*real)(int, const void *, size_t, off_t) = next(&known, "pwrite");
    return fails(fd, page->write_error) ? -1 : real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    static void *known;
    ssize_t (*real)(int, const void *, size_t, off64_t) = next(&known, "pwrite64");
    return fails(fd, page->write_error) ? -1 : real(fd, data, size, at);
}
"""


def reason_against() -> str | None:
    """Say why the library cannot be made here; None when it can."""
    if _compiler() is None:
        return f"a stepped clock and a failing disk need a compiler: {COMPILERS}"
    return None


def build_library(folder: Path) -> Path:
    """Compile the library into a folder."""
    source, library = folder / "machine_faults.c", folder / "machine_faults.so"
    source.write_text(SOURCE)
    compiler = _compiler()
    assert compiler is not None, "ask `reason_against` first"
    compiled = subprocess.run(
        [
            *(compiler, "-std=gnu11", "-O1", "-Wall", "-fPIC", "-shared"),
            *(source, "-o", library, "-ldl", "-lpthread"),
        ],
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    return library


@attrs.define(eq=False)
class MachineFaults:
    """What is wrong with one machine now; `opened` makes it.

    Args:
        environment: What a daemon must be started with to live on this machine.
    """

    environment: Mapping[str, str]
    _page: mmap.mmap

    @classmethod
    @contextlib.contextmanager
    def opened(cls, library: Path, page: Path) -> Iterator[MachineFaults]:
        """Make a machine that is well; its page is a new file."""
        page.write_bytes(bytes(PAGE_BYTES))
        environment = {"LD_PRELOAD": str(library), VARIABLE: str(page)}
        with page.open("r+b") as file, mmap.mmap(file.fileno(), PAGE_BYTES) as shared:
            yield cls(environment, shared)

    @property
    def wall_reads(self) -> int:
        """How often a process of this machine has read its wall clock."""
        return self._integer("q", WALL_READS)

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock so that it is off by so much, from now on."""
        struct.pack_into("q", self._page, WALL_SHIFT, int(seconds * NS_PER_S))

    def pass_time(self, seconds: float) -> None:
        """Let all clocks jump ahead, as if so much time had passed."""
        for place in (WALL_SHIFT, STEADY_SHIFT):
            shift_ns = self._integer("q", place) + int(seconds * NS_PER_S)
            struct.pack_into("q", self._page, place, shift_ns)

    def fail_syncs(self, error: int, prefix: Path) -> None:
        """Fail each sync of files whose path begins so, with this errno."""
        self._fail(SYNC_ERROR, error, prefix)

    def fail_writes(self, error: int, prefix: Path) -> None:
        """Fail each write to files whose path begins so, with this errno."""
        self._fail(WRITE_ERROR, error, prefix)

    def repair_disk(self) -> None:
        """Let every file be written again."""
        for place in (SYNC_ERROR, WRITE_ERROR):
            struct.pack_into("i", self._page, place, 0)

    def _fail(self, place: int, error: int, prefix: Path) -> None:
        text = str(prefix.resolve()).encode() + b"\0"
        assert len(text) <= PAGE_BYTES - PREFIX
        self._page[PREFIX : PREFIX + len(text)] = text
        struct.pack_into("i", self._page, place, error)

    def _integer(self, kind: str, place: int) -> int:
        return int(struct.unpack_from(kind, self._page, place)[0])


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, COMPILERS)), None)
