/*
 * Times slurmctld from within, the same way whatever select plugin it has:
 *
 *     LD_PRELOAD=slurmctld_times.so SLURMCTLD_TIMES=FILE slurmctld
 *
 * - how long each lock of its table is held for writing. These are the calls of
 *   pthread_rwlock_wrlock() that come from within lock_slurmctld();
 * - how long a selection takes that lets a job start: select_p_job_test() with
 *   SELECT_MODE_RUN_NOW and success, as Slurm gets it by dlsym(). A select plugin that
 *   asks another one is timed as a whole, and the other one within it.
 *
 * FILE is a times_t; bench/live/large/ctld_times.py reads it. Other programs that inherit the
 * variables are left alone: they have no lock_slurmctld().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOCKS 5 /* conf, job, node, part, fed: lock_datatype_t of locks.h */
#define MOST_STARTS 16384
#define MOST_PLUGINS 4
#define MODE_BASE 0x000f /* of the mode; SELECT_MODE_RUN_NOW is 0 */
#define NS 1000000000ull

typedef struct {
	uint64_t count, held_ns, cpu_ns, longest_ns;
} held_t;

typedef struct {
	uint64_t whole_ns, within_ns; /* within: of the plugin that was asked */
} start_t;

typedef struct {
	held_t locks[LOCKS];
	uint64_t fruitless, fruitless_ns; /* selections that started no job */
	uint64_t starts;
	start_t start[MOST_STARTS];
} times_t;

typedef long (*test_f)(long, long, long, long, long, long, long, long, long,
		       long);
typedef struct {
	uint64_t wall_ns, cpu_ns;
} stamp_t;

static times_t *times; /* NULL: not slurmctld */
static const char *from, *to; /* the code of lock_slurmctld() */
static const char *table; /* the first of its locks */
static stamp_t since[LOCKS]; /* of the one that holds it for writing */
static test_f tests[MOST_PLUGINS];
static __thread int depth;
static __thread uint64_t within_ns;

static int (*real_wrlock)(pthread_rwlock_t *);
static int (*real_unlock)(pthread_rwlock_t *);
static void *(*real_dlsym)(void *, const char *);

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t) now.tv_sec * NS + (uint64_t) now.tv_nsec;
}

static void resolve(void)
{
	real_wrlock = dlvsym(RTLD_NEXT, "pthread_rwlock_wrlock", "GLIBC_2.34");
	real_unlock = dlvsym(RTLD_NEXT, "pthread_rwlock_unlock", "GLIBC_2.34");
	real_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!real_wrlock || !real_unlock || !real_dlsym)
		abort();
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("SLURMCTLD_TIMES");
	ElfW(Sym) *symbol = NULL;
	void *mapped = MAP_FAILED;
	Dl_info info;
	int fd;

	resolve();
	from = real_dlsym(RTLD_DEFAULT, "lock_slurmctld");
	if (!path || !from ||
	    !dladdr1(from, &info, (void **) &symbol, RTLD_DL_SYMENT) || !symbol)
		return;
	to = from + symbol->st_size;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (!ftruncate(fd, sizeof(*times)))
		mapped = mmap(NULL, sizeof(*times), PROT_READ | PROT_WRITE,
			      MAP_SHARED, fd, 0);
	close(fd);
	if (mapped != MAP_FAILED)
		times = mapped;
}

/* ------------------------------------------------------------------ locks */

/* RET LOCKS for any other lock */
static size_t number_of(const pthread_rwlock_t *lock)
{
	size_t offset = (size_t) ((const char *) lock - table);

	return table && offset < LOCKS * sizeof(*lock) ?
		       offset / sizeof(*lock) : LOCKS;
}

extern int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
	const char *caller = __builtin_return_address(0);
	int rc;

	if (!real_wrlock)
		resolve();
	rc = real_wrlock(lock);
	if (rc || !times || caller < from || caller >= to)
		return rc;
	/* slurmctld takes all of them, in order, before it reads its files */
	if (!table)
		table = (const char *) lock;
	if (number_of(lock) < LOCKS)
		since[number_of(lock)] =
			(stamp_t) { clock_ns(CLOCK_MONOTONIC),
				    clock_ns(CLOCK_THREAD_CPUTIME_ID) };
	return rc;
}

extern int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	size_t number;

	if (!real_unlock)
		resolve();
	number = times ? number_of(lock) : LOCKS;
	/* Nobody else holds a lock that is held for writing. */
	if (number < LOCKS && since[number].wall_ns) {
		held_t *held = &times->locks[number];
		uint64_t ns = clock_ns(CLOCK_MONOTONIC) - since[number].wall_ns;

		held->count++;
		held->held_ns += ns;
		held->cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) -
				since[number].cpu_ns;
		if (ns > held->longest_ns)
			held->longest_ns = ns;
		since[number].wall_ns = 0;
	}
	return real_unlock(lock);
}

/* -------------------------------------------------------------- selections */

static void note(uint64_t ns, int started)
{
	if (!started) {
		times->fruitless++;
		times->fruitless_ns += ns;
	} else if (times->starts < MOST_STARTS) {
		times->start[times->starts++] = (start_t) { ns, within_ns };
	}
}

/* Slurm's releases differ in the last of up to ten arguments; what is one too many is not looked at. */
static long timed(test_f test, long a, long b, long c, long d, long e, long f,
		  long g, long h, long i, long j)
{
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC), ns;
	long rc;

	if (!depth++)
		within_ns = 0;
	rc = test(a, b, c, d, e, f, g, h, i, j);
	ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
	if (--depth)
		within_ns += ns;
	else
		note(ns, !(int) rc && !(f & MODE_BASE));
	return rc;
}

#define TIMED(n) \
	static long timed_##n(long a, long b, long c, long d, long e, long f, \
			      long g, long h, long i, long j) \
	{ \
		return timed(tests[n], a, b, c, d, e, f, g, h, i, j); \
	}
TIMED(0)
TIMED(1)
TIMED(2)
TIMED(3)

extern void *dlsym(void *restrict handle, const char *restrict name)
{
	static const test_f instead[MOST_PLUGINS] = { timed_0, timed_1, timed_2,
						      timed_3 };
	void *found;

	if (!real_dlsym)
		resolve();
	if (!times || strcmp(name, "select_p_job_test"))
		return real_dlsym(handle, name);
	found = real_dlsym(handle, name);
	for (int n = 0; found && n < MOST_PLUGINS; n++) {
		if (!tests[n])
			tests[n] = (test_f) found;
		if (tests[n] == (test_f) found)
			return (void *) instead[n];
	}
	return found;
}
