/* A disk that can lose what was not synced, for one process: a library to be preloaded (LD_PRELOAD).
 *
 * Whatever the process does to files below UNSYNCED_ROOT happens at once, as on any system that keeps running. Before
 * that, the library notes how things were: for each file in UNSYNCED_JOURNAL/file-INODE, for the names in each
 * directory in UNSYNCED_JOURNAL/names-INODE. A sync empties the note of what was synced. When the process has been
 * killed, antiphon.torture.live.power reads the notes and takes back what a loss of power would have taken.
 *
 * A note is a mapped file of a fixed size: it survives the process, and no limit on the size of files stops it. When it
 * is full it is emptied, as systems write back by themselves what nobody has synced.
 *
 * With UNSYNCED_LIES=1 syncs are said to be done, and are not: a broken disk, to see whether anybody notices. If there is
 * a file UNSYNCED_SLOW, each sync takes as many microseconds longer as it says.
 *
 * Seen are open, write, pwrite, writev, pwritev and its kin, ftruncate, fsync, fdatasync, unlink, rename and mkdir: what
 * SQLite and Python use. Not seen are mapped memory (the index of SQLite's log, which is made anew after a crash) and
 * names that move from one directory to another.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NOTE_BYTES ((uint64_t)1 << 26)
#define NOTES_AT_MOST 256

enum { WRITTEN = 1, TRUNCATED = 2, CREATED = 3, UNLINKED = 4, RENAMED = 5 };

/* The first bytes of a note; what follows is `used` bytes of records, each with its `length` of bytes behind it. */
struct head {
    uint64_t used;
    uint64_t saved; /* files that were put aside so far, for names that were lost */
};

/* For WRITTEN and TRUNCATED the bytes are those that were at `offset`; `new_length` bytes replace them, or none.
 * For names the bytes are the names, each ended by a zero; `offset` is the number of a file that was put aside, or 0. */
struct record {
    uint64_t kind, offset, length, new_length, old_size;
};

struct note {
    dev_t device;
    ino_t inode;
    int is_directory;
    struct head *head;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], journal[PATH_MAX - 64];
static size_t root_length;
static int lies;
static char slowness[PATH_MAX];
static struct note notes[NOTES_AT_MOST];
static int note_count;

/* What the library of the system does under a name. */
#define REAL(name)                                                \
    ({                                                            \
        static __typeof__(&name) found;                           \
        if (found == NULL) found = (__typeof__(&name))real(#name);\
        found;                                                    \
    })

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) abort();
    return found;
}

static void give_up(const char *what) {
    fprintf(stderr, "unsynced: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void begin(void) {
    const char *said_root = getenv("UNSYNCED_ROOT"), *said_journal = getenv("UNSYNCED_JOURNAL");
    if (said_root == NULL || said_journal == NULL) return;
    snprintf(root, sizeof root, "%s", said_root);
    snprintf(journal, sizeof journal, "%s", said_journal);
    root_length = strlen(root);
    lies = getenv("UNSYNCED_LIES") != NULL;
    const char *said_slowness = getenv("UNSYNCED_SLOW");
    if (said_slowness != NULL) snprintf(slowness, sizeof slowness, "%s", said_slowness);
}

/* Notes. */

static int is_below_root(const char *path) {
    return root_length > 0 && strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == '\0');
}

static struct note *find_note(const struct stat *about) {
    for (int index = 0; index < note_count; index++)
        if (notes[index].inode == about->st_ino && notes[index].device == about->st_dev) return &notes[index];
    return NULL;
}

/* The note of a file or directory, which an earlier process may have begun; NULL with errno if there is none. */
static struct note *open_note(const struct stat *about) {
    struct note *found = find_note(about);
    if (found != NULL) return found;
    char path[PATH_MAX];
    int is_directory = S_ISDIR(about->st_mode);
    snprintf(path, sizeof path, "%s/%s-%llu", journal, is_directory ? "names" : "file",
             (unsigned long long)about->st_ino);
    if (note_count == NOTES_AT_MOST) {
        errno = ENFILE;
        return NULL;
    }
    int file = REAL(open)(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return NULL;
    void *memory = MAP_FAILED;
    if (REAL(ftruncate)(file, NOTE_BYTES) == 0)
        memory = mmap(NULL, NOTE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return NULL;
    found = &notes[note_count++];
    *found = (struct note){about->st_dev, about->st_ino, is_directory, memory};
    return found;
}

static void saved_path(char *path, const struct note *note, uint64_t number) {
    snprintf(path, PATH_MAX, "%s/saved-%llu-%llu", journal, (unsigned long long)note->inode,
             (unsigned long long)number);
}

static void empty_note(struct note *note) {
    char path[PATH_MAX];
    note->head->used = 0;
    for (; note->head->saved > 0; note->head->saved--) {
        saved_path(path, note, note->head->saved);
        REAL(unlink)(path);
    }
}

/* Room for a record with so many bytes; the record counts when it is complete (finish_record). */
static struct record *begin_record(struct note *note, uint64_t length) {
    uint64_t wanted = sizeof(struct record) + (length + 7) / 8 * 8;
    if (sizeof(struct head) + note->head->used + wanted > NOTE_BYTES) empty_note(note);
    if (sizeof(struct head) + wanted > NOTE_BYTES) return NULL;
    return (struct record *)((char *)(note->head + 1) + note->head->used);
}

static void finish_record(struct note *note, struct record *record) {
    uint64_t size = sizeof(struct record) + (record->length + 7) / 8 * 8;
    __atomic_store_n(&note->head->used, note->head->used + size, __ATOMIC_RELEASE);
}

/* Note what is in a file before a part of it is replaced, or before it ends at `offset`. */
static void note_bytes(struct note *note, int file, uint64_t kind, uint64_t offset, uint64_t new_length) {
    struct stat about;
    if (fstat(file, &about) != 0) give_up("fstat");
    uint64_t size = (uint64_t)about.st_size, end = kind == TRUNCATED ? size : offset + new_length;
    if (end > size) end = size;
    uint64_t length = end > offset ? end - offset : 0;
    struct record *record = begin_record(note, length);
    if (record == NULL) return;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    /* The descriptor may be one for writing only. */
    int reading = length > 0 ? REAL(open)(path, O_RDONLY | O_CLOEXEC) : -1;
    for (uint64_t done = 0; done < length;) {
        ssize_t count = pread(reading, (char *)(record + 1) + done, length - done, (off_t)(offset + done));
        if (count <= 0) give_up("reading what is to be replaced");
        done += (uint64_t)count;
    }
    if (reading >= 0) close(reading);
    *record = (struct record){kind, offset, length, new_length, size};
    finish_record(note, record);
}

/* The note of the directory of a path below the root, with the last part of the path; NULL elsewhere. */
static struct note *directory_of(const char *path, const char **name) {
    char copy[PATH_MAX], resolved[PATH_MAX];
    struct stat about;
    if (root_length == 0 || strlen(path) >= sizeof copy) return NULL;
    strcpy(copy, path);
    char *slash = strrchr(copy, '/');
    *name = slash == NULL ? path : path + (slash - copy) + 1;
    if (slash == NULL) strcpy(copy, ".");
    else slash[slash == copy ? 1 : 0] = '\0';
    if (realpath(copy, resolved) == NULL || !is_below_root(resolved) || stat(resolved, &about) != 0) return NULL;
    struct note *note = open_note(&about);
    if (note == NULL) give_up("the note of a directory");
    return note;
}

/* Put a file aside that is about to lose its name; its number. */
static uint64_t put_aside(struct note *note, const char *path) {
    char aside[PATH_MAX];
    saved_path(aside, note, note->head->saved + 1);
    REAL(unlink)(aside);
    if (link(path, aside) != 0) give_up("putting a file aside");
    return ++note->head->saved;
}

static void note_names(struct note *note, uint64_t kind, const char *name, const char *other, uint64_t aside) {
    uint64_t first = strlen(name) + 1, second = other == NULL ? 0 : strlen(other) + 1;
    struct record *record = begin_record(note, first + second);
    if (record == NULL) return;
    memcpy((char *)(record + 1), name, first);
    if (other != NULL) memcpy((char *)(record + 1) + first, other, second);
    *record = (struct record){kind, aside, first + second, 0, 0};
    finish_record(note, record);
}

/* What a process calls. */

static int is_index(const char *path) {
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, "-shm") == 0;
}

/* Begin to watch a file that was opened, and end it if that was asked for. */
static int opened(int file, int flags, int is_new) {
    char link_path[64], path[PATH_MAX];
    struct stat about;
    if (file < 0 || root_length == 0 || fstat(file, &about) != 0) return file;
    if (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) return file;
    snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link_path, path, sizeof path - 1);
    if (length < 0) return file;
    path[length] = '\0';
    int result = 0;
    if (!is_below_root(path) || is_index(path)) {
        if (flags & O_TRUNC) result = REAL(ftruncate)(file, 0);
    } else {
        struct note *note = open_note(&about);
        if (note == NULL) result = -1;
        else if (is_new) empty_note(note);
        if (result == 0 && (flags & O_TRUNC)) {
            note_bytes(note, file, TRUNCATED, 0, 0);
            result = REAL(ftruncate)(file, 0);
        }
    }
    if (result == 0) return file;
    int reason = errno;
    close(file);
    errno = reason;
    return -1;
}

static int open_anything(int directory, const char *path, int flags, mode_t mode) {
    if (root_length == 0 || (directory != AT_FDCWD && path[0] != '/'))
        return REAL(openat)(directory, path, flags, mode);
    pthread_mutex_lock(&guard);
    const char *name;
    int is_new = (flags & O_CREAT) && access(path, F_OK) != 0;
    struct note *names = is_new ? directory_of(path, &name) : NULL;
    if (names != NULL && !is_index(path)) note_names(names, CREATED, name, NULL, 0);
    /* A file that cannot be written cannot be ended either. */
    int ends = (flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY;
    int file = REAL(openat)(directory, path, ends ? flags & ~O_TRUNC : flags, mode);
    file = opened(file, ends ? flags : flags & ~O_TRUNC, is_new);
    pthread_mutex_unlock(&guard);
    return file;
}

#define OPENING(name, parameters, directory)                      \
    int name parameters {                                         \
        mode_t mode = 0;                                          \
        if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) { \
            va_list more;                                         \
            va_start(more, flags);                                \
            mode = va_arg(more, mode_t);                          \
            va_end(more);                                         \
        }                                                         \
        return open_anything(directory, path, flags, mode);       \
    }

OPENING(open, (const char *path, int flags, ...), AT_FDCWD)
OPENING(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENING(openat, (int directory, const char *path, int flags, ...), directory)
OPENING(openat64, (int directory, const char *path, int flags, ...), directory)

/* The note of what a descriptor is open on, with the guard held; NULL, and no guard, if nobody watches it. */
static struct note *watched(int file) {
    struct stat about;
    if (root_length == 0 || fstat(file, &about) != 0) return NULL;
    if (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) return NULL;
    pthread_mutex_lock(&guard);
    struct note *note = find_note(&about);
    if (note == NULL) pthread_mutex_unlock(&guard);
    return note;
}

static uint64_t place_of(int file) {
    struct stat about;
    if ((fcntl(file, F_GETFL) & O_APPEND) && fstat(file, &about) == 0) return (uint64_t)about.st_size;
    return (uint64_t)lseek(file, 0, SEEK_CUR);
}

static uint64_t sum_of(const struct iovec *parts, int count) {
    uint64_t sum = 0;
    for (int index = 0; index < count; index++) sum += parts[index].iov_len;
    return sum;
}

#define CHANGING(file, kind, offset, length, call)                \
    do {                                                          \
        struct note *note = watched(file);                        \
        if (note == NULL) return call;                            \
        note_bytes(note, file, kind, (uint64_t)(offset), length); \
        __typeof__(call) result = call;                           \
        int reason = errno;                                       \
        pthread_mutex_unlock(&guard);                             \
        errno = reason;                                           \
        return result;                                            \
    } while (0)

ssize_t write(int file, const void *bytes, size_t length) {
    CHANGING(file, WRITTEN, place_of(file), length, REAL(write)(file, bytes, length));
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    CHANGING(file, WRITTEN, place_of(file), sum_of(parts, count), REAL(writev)(file, parts, count));
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) {
    CHANGING(file, WRITTEN, offset, length, REAL(pwrite)(file, bytes, length, offset));
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset) {
    CHANGING(file, WRITTEN, offset, length, REAL(pwrite64)(file, bytes, length, offset));
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t offset) {
    CHANGING(file, WRITTEN, offset, sum_of(parts, count), REAL(pwritev)(file, parts, count, offset));
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t offset) {
    CHANGING(file, WRITTEN, offset, sum_of(parts, count), REAL(pwritev64)(file, parts, count, offset));
}

ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t offset, int flags) {
    uint64_t place = offset == -1 ? place_of(file) : (uint64_t)offset;
    CHANGING(file, WRITTEN, place, sum_of(parts, count), REAL(pwritev2)(file, parts, count, offset, flags));
}

ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t offset, int flags) {
    uint64_t place = offset == -1 ? place_of(file) : (uint64_t)offset;
    CHANGING(file, WRITTEN, place, sum_of(parts, count), REAL(pwritev64v2)(file, parts, count, offset, flags));
}

int ftruncate(int file, off_t length) { CHANGING(file, TRUNCATED, length, 0, REAL(ftruncate)(file, length)); }

int ftruncate64(int file, off64_t length) { CHANGING(file, TRUNCATED, length, 0, REAL(ftruncate64)(file, length)); }

/* A slow disk: a file says how many microseconds each sync takes more. Nobody else waits, so no guard is held. */
static void wait_for_disk(void) {
    char text[32];
    int said = slowness[0] != '\0' ? REAL(open)(slowness, O_RDONLY | O_CLOEXEC) : -1;
    if (said < 0) return;
    ssize_t length = read(said, text, sizeof text - 1);
    close(said);
    text[length > 0 ? length : 0] = '\0';
    long micros = atol(text);
    struct timespec left = {micros / 1000000, micros % 1000000 * 1000};
    while (micros > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static int sync_watched(int file, int (*call)(int)) {
    struct note *note = watched(file);
    if (note != NULL) {
        pthread_mutex_unlock(&guard);
        wait_for_disk();
        note = watched(file);
    }
    if (note == NULL) return call(file);
    int result = lies ? 0 : call(file);
    int reason = errno;
    if (result == 0 && !lies) empty_note(note);
    pthread_mutex_unlock(&guard);
    errno = reason;
    return result;
}

int fsync(int file) { return sync_watched(file, REAL(fsync)); }

int fdatasync(int file) { return sync_watched(file, REAL(fdatasync)); }

int unlink(const char *path) {
    const char *name;
    pthread_mutex_lock(&guard);
    struct note *note = is_index(path) || access(path, F_OK) != 0 ? NULL : directory_of(path, &name);
    if (note != NULL) note_names(note, UNLINKED, name, NULL, put_aside(note, path));
    int result = REAL(unlink)(path), reason = errno;
    pthread_mutex_unlock(&guard);
    errno = reason;
    return result;
}

int rename(const char *path, const char *other) {
    const char *name, *other_name;
    pthread_mutex_lock(&guard);
    struct note *note = directory_of(path, &name);
    if (note != NULL && directory_of(other, &other_name) == note)
        note_names(note, RENAMED, name, other_name, access(other, F_OK) == 0 ? put_aside(note, other) : 0);
    int result = REAL(rename)(path, other), reason = errno;
    pthread_mutex_unlock(&guard);
    errno = reason;
    return result;
}

int mkdir(const char *path, mode_t mode) {
    const char *name;
    pthread_mutex_lock(&guard);
    struct note *note = access(path, F_OK) == 0 ? NULL : directory_of(path, &name);
    if (note != NULL) note_names(note, CREATED, name, NULL, 0);
    int result = REAL(mkdir)(path, mode), reason = errno;
    pthread_mutex_unlock(&guard);
    errno = reason;
    return result;
}
