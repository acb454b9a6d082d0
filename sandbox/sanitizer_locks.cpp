// OpenMP's locks and memory fences for test builds under a sanitizer (see sanitizer_openmp.cpp).
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

extern "C" {

// An omp_lock_t has four bytes: they hold the number of one of our mutexes, given out by omp_init_lock.
static pthread_mutex_t* locks[1024];
static int num_locks = 0;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
void omp_init_lock(int* lock) {
  pthread_mutex_lock(&counting);
  if (num_locks == 1024) _exit(70);
  locks[num_locks] = new pthread_mutex_t;
  pthread_mutex_init(locks[num_locks], nullptr);
  *lock = num_locks++;
  pthread_mutex_unlock(&counting);
}
void omp_destroy_lock(int*) {}
void omp_set_lock(int* lock) { pthread_mutex_lock(locks[*lock]); }
void omp_unset_lock(int* lock) { pthread_mutex_unlock(locks[*lock]); }
int omp_test_lock(int* lock) { return pthread_mutex_trylock(locks[*lock]) == 0; }

}  // extern "C"
