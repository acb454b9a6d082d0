// OpenMP's locks, critical sections and memory fences for test builds under a sanitizer (see sanitizer_openmp.cpp).
#include <pthread.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
// `#pragma omp flush` and std::atomic_thread_fence order memory; the sanitizer's own fence tells it nothing of that.
extern "C" void __real___tsan_atomic_thread_fence(int);
extern "C" void __wrap___tsan_atomic_thread_fence(int order) {
  static char everybody;
  __tsan_acquire(&everybody);
  __tsan_release(&everybody);
  __real___tsan_atomic_thread_fence(order);
}
#endif

namespace {

pthread_mutex_t critical = PTHREAD_MUTEX_INITIALIZER, atomics = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

pthread_mutex_t* named(void** place) {
  void* found = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (found != nullptr) return static_cast<pthread_mutex_t*>(found);
  pthread_mutex_lock(&naming);
  found = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (found == nullptr) {
    pthread_mutex_t* fresh = new pthread_mutex_t;
    pthread_mutex_init(fresh, nullptr);
    __atomic_store_n(place, static_cast<void*>(fresh), __ATOMIC_RELEASE);
    found = fresh;
  }
  pthread_mutex_unlock(&naming);
  return static_cast<pthread_mutex_t*>(found);
}

}  // namespace

extern "C" {

void GOMP_critical_start() { pthread_mutex_lock(&critical); }
void GOMP_critical_end() { pthread_mutex_unlock(&critical); }
void GOMP_critical_name_start(void** place) { pthread_mutex_lock(named(place)); }
void GOMP_critical_name_end(void** place) { pthread_mutex_unlock(named(place)); }
void GOMP_atomic_start() { pthread_mutex_lock(&atomics); }
void GOMP_atomic_end() { pthread_mutex_unlock(&atomics); }

// An omp_lock_t has four bytes: they hold the number of one of our mutexes, given out by omp_init_lock.
static pthread_mutex_t* locks[1024];
static int num_locks = 0;
void omp_init_lock(int* lock) {
  pthread_mutex_lock(&naming);
  if (num_locks == 1024) _exit(70);
  locks[num_locks] = new pthread_mutex_t;
  pthread_mutex_init(locks[num_locks], nullptr);
  *lock = num_locks++;
  pthread_mutex_unlock(&naming);
}
void omp_destroy_lock(int*) {}
void omp_set_lock(int* lock) { pthread_mutex_lock(locks[*lock]); }
void omp_unset_lock(int* lock) { pthread_mutex_unlock(locks[*lock]); }
int omp_test_lock(int* lock) { return pthread_mutex_trylock(locks[*lock]) == 0; }

}  // extern "C"
