/* Steps the wall clock of one process: preloaded into mongod, it adds the
 * milliseconds in the file TENURE_CLOCK_OFFSET_FILE to every reading of the
 * wall clock. The monotonic clock stays true.
 *
 * Waits with a deadline on the wall clock are carried back to the true clock.
 * mongod builds its waits for a duration on such deadlines, and without this a
 * wait of 10 ms would last an hour after a step of one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define MILLISECOND 1000000LL
#define LOOK_EVERY (50 * MILLISECOND)
/* A deadline beyond this many seconds is on the wall clock: no machine has been
 * up for the 31 years that the monotonic clock would need. */
#define WALL_CLOCK_SECONDS 1000000000LL

typedef int clock_function(clockid_t, struct timespec *);
typedef int wait_function(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
typedef int semaphore_function(sem_t *, const struct timespec *);

static clock_function *real_clock;
static wait_function *real_wait;
static semaphore_function *real_semaphore_wait;

static _Atomic long long next_look;
static _Atomic long long offset;
/* The offset of the latest reading in this thread. A deadline was computed from
 * that reading, so that a step between the two must not move it. */
static __thread long long offset_read __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void resolve(void) {
    real_clock = (clock_function *)dlsym(RTLD_NEXT, "clock_gettime");
    /* Unversioned, this name may mean the implementation from before 2003. */
    real_wait = (wait_function *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_wait)
        real_wait = (wait_function *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real_semaphore_wait = (semaphore_function *)dlsym(RTLD_NEXT, "sem_timedwait");
}

static int true_time(clockid_t id, struct timespec *now) {
    /* Other libraries may ask for the time before the constructor has run. */
    return real_clock ? real_clock(id, now) : (int)syscall(SYS_clock_gettime, id, now);
}

static long long nanoseconds(const struct timespec *time) {
    return time->tv_sec * SECOND + time->tv_nsec;
}

static struct timespec timespec_of(long long nanoseconds) {
    struct timespec time = {nanoseconds / SECOND, nanoseconds % SECOND};
    return time;
}

static void look(void) {
    struct timespec monotonic;
    true_time(CLOCK_MONOTONIC, &monotonic);
    long long now = nanoseconds(&monotonic);
    long long due = atomic_load(&next_look);
    if (now < due || !atomic_compare_exchange_strong(&next_look, &due, now + LOOK_EVERY))
        return;
    /* Who reads a clock does not expect it to change errno. */
    int before = errno;
    const char *path = getenv("TENURE_CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        char text[32] = {0};
        if (read(file, text, sizeof text - 1) > 0)
            atomic_store(&offset, strtoll(text, NULL, 10) * MILLISECOND);
        close(file);
    }
    errno = before;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = true_time(id, now);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        look();
        offset_read = atomic_load(&offset);
        *now = timespec_of(nanoseconds(now) + offset_read);
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

static struct timespec true_deadline(const struct timespec *deadline) {
    int is_wall = deadline->tv_sec > WALL_CLOCK_SECONDS;
    return is_wall ? timespec_of(nanoseconds(deadline) - offset_read) : *deadline;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    struct timespec carried = true_deadline(deadline);
    return real_wait(condition, mutex, &carried);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    struct timespec carried = true_deadline(deadline);
    return real_semaphore_wait(semaphore, &carried);
}
