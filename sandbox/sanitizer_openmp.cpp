// OpenMP on plain pthreads, for test builds under a sanitizer: what g++ -fopenmp calls, so that ThreadSanitizer sees
// every synchronisation there is. libgomp itself is not instrumented, and its barriers would look like races.
// Entry points: GCC's libgomp ABI (libgomp.map, libgomp_g.h). What is missing here (tasks with dependences, ordered,
// doacross, cancellation, offloading) fails to link, and the caller says "failed".
//
// It must order no more than OpenMP does, or it would hide races. So the counters that hand out iterations are relaxed
// atomics, which order nothing, and no thread begins a region before all have taken it up.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;

namespace {

constexpr int MOST_THREADS = 32;
constexpr int SLOTS = 4096;  // constructs that share work between two barriers

struct Slot {
  u64 taken;  // iterations handed out
  int arrived;
};

struct Team {
  int size = 1;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
  int waiting = 0;
  unsigned round = 0;
  int begun = 0;
  void* copied = nullptr;
  int used = 0;  // slots used since the last barrier; written under `lock`
  Slot slots[SLOTS] = {};
};

enum Kind { DYNAMIC, GUIDED, STATIC };

struct Loop {
  Kind kind = DYNAMIC;
  bool up = true;
  u64 start = 0, step = 1, count = 0, chunk = 1, round = 0;
  Slot* slot = nullptr;
};

struct Self {
  Team* team = nullptr;
  int number = 0;
  int next_slot = 0;
  int level = 0;
  Loop loop;
};

typedef void (*Body)(void*);

struct Job {
  Body body = nullptr;
  void* data = nullptr;
  Team* team = nullptr;
  Loop loop;
  bool has_loop = false;
};

thread_local Self self;
thread_local uint32_t dice = 0;
int wanted_threads = 1;

struct Pool {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
  int started = 0;
  unsigned region = 0;
  int members = 0;  // workers that take part in the region
  int left = 0;     // of those, how many have not ended yet
  Job job;
} pool;

// A short pause now and then, so that no thread takes all the work and their order changes.
void jitter() {
  if (self.team == nullptr || self.team->size == 1) return;
  if (dice == 0) dice = 2654435761u * (self.number + 1) ^ static_cast<uint32_t>(getpid());
  dice ^= dice << 13;
  dice ^= dice >> 17;
  dice ^= dice << 5;
  if ((dice & 7) == 0) usleep(dice >> 27);
  else if ((dice & 1) == 0) sched_yield();
}

// Wait until `count` threads have come here, for `most_us` at most (0: for ever). Orders nothing.
void gather(int* counter, int count, int most_us) {
  __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
  for (int waited = 0; __atomic_load_n(counter, __ATOMIC_RELAXED) < count; waited += 20) {
    if (most_us != 0 && waited >= most_us) return;
    usleep(20);
  }
}

void barrier() {
  Team* team = self.team;
  if (team == nullptr || team->size == 1) {
    if (team != nullptr)
      for (int i = 0; i < self.next_slot; ++i) team->slots[i] = Slot();
    self.next_slot = 0;
    return;
  }
  jitter();
  pthread_mutex_lock(&team->lock);
  if (self.next_slot > team->used) team->used = self.next_slot;
  const unsigned round = team->round;
  if (++team->waiting == team->size) {
    for (int i = 0; i < team->used; ++i) {
      __atomic_store_n(&team->slots[i].taken, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&team->slots[i].arrived, 0, __ATOMIC_RELAXED);
    }
    team->used = team->waiting = 0;
    ++team->round;
    pthread_cond_broadcast(&team->moved);
  } else {
    while (round == team->round) pthread_cond_wait(&team->moved, &team->lock);
  }
  pthread_mutex_unlock(&team->lock);
  self.next_slot = 0;
}

Team* alone() {  // the team of one that code outside a parallel region has
  static thread_local Team* mine = nullptr;
  if (mine == nullptr) mine = new Team;
  return mine;
}

Slot* take_slot() {
  if (self.team == nullptr) self.team = alone();
  if (self.next_slot == SLOTS) {
    fprintf(stderr, "kernelwright: too many work-sharing constructs between two barriers\n");
    _exit(70);
  }
  return &self.team->slots[self.next_slot++];
}

void run_member(const Job& job, int number, int level) {
  const Self before = self;
  self = Self();
  self.team = job.team;
  self.number = number;
  self.level = level;
  if (job.has_loop) {
    self.loop = job.loop;
    self.loop.slot = take_slot();
  }
  gather(&job.team->begun, job.team->size, 0);
  job.body(job.data);
  barrier();
  self = before;
}

void* work(void* argument) {
  const int number = static_cast<int>(reinterpret_cast<intptr_t>(argument));
  unsigned seen = 0;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (pool.region == seen || number > pool.members) {
      if (pool.region != seen) seen = pool.region;
      pthread_cond_wait(&pool.moved, &pool.lock);
    }
    seen = pool.region;
    const Job job = pool.job;
    pthread_mutex_unlock(&pool.lock);
    run_member(job, number, 1);
    pthread_mutex_lock(&pool.lock);
    if (--pool.left == 0) pthread_cond_broadcast(&pool.moved);
  }
}

void run_parallel(Body body, void* data, unsigned asked, const Loop* loop) {
  Job job;
  job.body = body;
  job.data = data;
  job.team = new Team;
  job.has_loop = loop != nullptr;
  if (loop != nullptr) job.loop = *loop;
  const int size = asked == 0 ? wanted_threads : static_cast<int>(asked);
  job.team->size = self.level > 0 ? 1 : size > MOST_THREADS ? MOST_THREADS : size;  // as libgomp: no nesting by default
  const int workers = job.team->size - 1;
  if (workers > 0) {
    pthread_mutex_lock(&pool.lock);
    while (pool.started < workers) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, work, reinterpret_cast<void*>(static_cast<intptr_t>(++pool.started))) != 0) {
        fprintf(stderr, "kernelwright: no more threads\n");
        _exit(70);
      }
      pthread_detach(thread);
    }
    pool.job = job;
    pool.members = pool.left = workers;
    ++pool.region;
    pthread_cond_broadcast(&pool.moved);
    pthread_mutex_unlock(&pool.lock);
  }
  run_member(job, 0, self.level + 1);
  if (workers > 0) {
    pthread_mutex_lock(&pool.lock);
    while (pool.left > 0) pthread_cond_wait(&pool.moved, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
  }
  delete job.team;
}

Loop make_loop(Kind kind, bool up, bool empty, u64 start, u64 end, u64 incr, u64 chunk) {
  Loop loop;
  loop.kind = kind;
  loop.up = up;
  loop.start = start;
  loop.step = up ? incr : 0 - incr;
  const u64 span = up ? end - start : start - end;
  loop.count = empty ? 0 : (span + loop.step - 1) / loop.step;
  loop.chunk = chunk == 0 && kind != STATIC ? 1 : chunk;
  return loop;
}

Loop signed_loop(Kind kind, long start, long end, long incr, long chunk) {
  const bool up = incr > 0;
  return make_loop(kind, up, up ? start >= end : start <= end, start, end, incr, chunk);
}

void begin_loop(const Loop& loop) {
  self.loop = loop;
  self.loop.slot = take_slot();
  // so that every thread gets some of the work; bounded, as the others may be busy before they come here
  if (self.team->size > 1 && loop.kind != STATIC) gather(&self.loop.slot->arrived, self.team->size, 2000);
}

bool take_static(Loop& l, u64* from, u64* to) {
  const u64 threads = self.team->size, number = self.number, round = l.round++;
  if (l.chunk == 0) {
    const u64 each = l.count / threads, more = l.count % threads;
    *from = number * each + (number < more ? number : more);
    *to = *from + each + (number < more);
    return round == 0 && *from < *to;
  }
  *from = (round * threads + number) * l.chunk;
  *to = *from + l.chunk < l.count ? *from + l.chunk : l.count;
  return *from < l.count;
}

bool take_iterations(u64* first, u64* last) {
  Loop& l = self.loop;
  u64 from, to;
  jitter();
  if (l.kind == STATIC) {
    if (!take_static(l, &from, &to)) return false;
  } else if (l.kind == DYNAMIC) {
    from = __atomic_fetch_add(&l.slot->taken, l.chunk, __ATOMIC_RELAXED);
    if (from >= l.count) return false;
    to = l.count - from > l.chunk ? from + l.chunk : l.count;
  } else {
    from = __atomic_load_n(&l.slot->taken, __ATOMIC_RELAXED);
    do {
      if (from >= l.count) return false;
      const u64 left = l.count - from, size = self.team->size;
      u64 part = (left + size - 1) / size;
      part = part < l.chunk ? l.chunk : part;
      to = from + (part < left ? part : left);
    } while (!__atomic_compare_exchange_n(&l.slot->taken, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  }
  *first = l.up ? l.start + from * l.step : l.start - from * l.step;
  *last = l.up ? l.start + to * l.step : l.start - to * l.step;
  return true;
}

bool take_signed(long* first, long* last) {
  u64 from, to;
  if (!take_iterations(&from, &to)) return false;
  *first = static_cast<long>(from);
  *last = static_cast<long>(to);
  return true;
}

}  // namespace

extern "C" {

void GOMP_parallel(Body body, void* data, unsigned threads, unsigned) { run_parallel(body, data, threads, nullptr); }
void GOMP_barrier() { barrier(); }

#define LOOP(NAME, KIND)                                                                                     \
  bool GOMP_loop_##NAME##_start(long start, long end, long incr, long chunk, long* first, long* last) {      \
    begin_loop(signed_loop(KIND, start, end, incr, chunk));                                                  \
    return take_signed(first, last);                                                                         \
  }                                                                                                          \
  bool GOMP_loop_##NAME##_next(long* first, long* last) { return take_signed(first, last); }                 \
  bool GOMP_loop_ull_##NAME##_start(bool up, u64 start, u64 end, u64 incr, u64 chunk, u64* first, u64* last) { \
    begin_loop(make_loop(KIND, up, up ? start >= end : start <= end, start, end, incr, chunk));              \
    return take_iterations(first, last);                                                                     \
  }                                                                                                          \
  bool GOMP_loop_ull_##NAME##_next(u64* first, u64* last) { return take_iterations(first, last); }           \
  void GOMP_parallel_loop_##NAME(Body body, void* data, unsigned threads, long start, long end, long incr,   \
                                 long chunk, unsigned) {                                                     \
    const Loop loop = signed_loop(KIND, start, end, incr, chunk);                                            \
    run_parallel(body, data, threads, &loop);                                                                \
  }
LOOP(static, STATIC)
LOOP(dynamic, DYNAMIC)
LOOP(nonmonotonic_dynamic, DYNAMIC)
LOOP(guided, GUIDED)
LOOP(nonmonotonic_guided, GUIDED)

#define RUNTIME_LOOP(NAME)                                                                                   \
  bool GOMP_loop_##NAME##_start(long start, long end, long incr, long* first, long* last) {                  \
    return GOMP_loop_dynamic_start(start, end, incr, 1, first, last);                                        \
  }                                                                                                          \
  bool GOMP_loop_##NAME##_next(long* first, long* last) { return take_signed(first, last); }                 \
  bool GOMP_loop_ull_##NAME##_start(bool up, u64 start, u64 end, u64 incr, u64* first, u64* last) {          \
    return GOMP_loop_ull_dynamic_start(up, start, end, incr, 1, first, last);                                \
  }                                                                                                          \
  bool GOMP_loop_ull_##NAME##_next(u64* first, u64* last) { return take_iterations(first, last); }           \
  void GOMP_parallel_loop_##NAME(Body body, void* data, unsigned threads, long start, long end, long incr,   \
                                 unsigned flags) {                                                           \
    GOMP_parallel_loop_dynamic(body, data, threads, start, end, incr, 1, flags);                             \
  }
RUNTIME_LOOP(runtime)
RUNTIME_LOOP(nonmonotonic_runtime)
RUNTIME_LOOP(maybe_nonmonotonic_runtime)

void GOMP_loop_end() { barrier(); }
void GOMP_loop_end_nowait() {}

unsigned GOMP_sections_next() {
  u64 from, to;
  return take_iterations(&from, &to) ? static_cast<unsigned>(from) : 0;
}
unsigned GOMP_sections_start(unsigned count) {
  begin_loop(signed_loop(DYNAMIC, 1, count + 1L, 1, 1));
  return GOMP_sections_next();
}
void GOMP_parallel_sections(Body body, void* data, unsigned threads, unsigned count, unsigned) {
  const Loop loop = signed_loop(DYNAMIC, 1, count + 1L, 1, 1);
  run_parallel(body, data, threads, &loop);
}
void GOMP_sections_end() { barrier(); }
void GOMP_sections_end_nowait() {}

bool GOMP_single_start() { return __atomic_fetch_add(&take_slot()->taken, 1, __ATOMIC_RELAXED) == 0; }
void* GOMP_single_copy_start() {
  if (GOMP_single_start()) return nullptr;
  barrier();
  return self.team->copied;
}
void GOMP_single_copy_end(void* data) {
  self.team->copied = data;
  barrier();
}

int omp_get_thread_num() { return self.team == nullptr ? 0 : self.number; }
int omp_get_num_threads() { return self.team == nullptr ? 1 : self.team->size; }
int omp_get_max_threads() { return wanted_threads; }
int omp_get_thread_limit() { return MOST_THREADS; }
int omp_get_num_procs() { return wanted_threads; }
int omp_in_parallel() { return self.team != nullptr && self.team->size > 1; }
int omp_get_level() { return self.level; }
int omp_get_active_level() { return omp_in_parallel(); }
int omp_get_max_active_levels() { return 1; }
int omp_get_dynamic() { return 0; }
int omp_get_nested() { return 0; }
int omp_get_num_teams() { return 1; }
int omp_get_team_num() { return 0; }
void omp_set_dynamic(int) {}
void omp_set_nested(int) {}
void omp_set_max_active_levels(int) {}
void omp_set_schedule(int, int) {}
void omp_set_num_threads(int threads) { wanted_threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads; }
double omp_get_wtime() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double omp_get_wtick() { return 1e-9; }

}  // extern "C"
