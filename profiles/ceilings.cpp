// What this machine reaches: streaming reads of buffers of several sizes, fused multiply-adds, and the dot products of
// bf16 and int8 where it has instructions for them (those of AVX-512; with AMX, which is faster still, bf16 and int8 are
// left out), with pinned threads.
//
//   ceilings CPUS DRAM_BYTES CACHE_BYTES L2_BYTES L1_BYTES ROUNDS REPETITIONS      (a size of 0 is not measured)
//
// CPUS is a comma-separated list, one thread each. Prints one JSON object per line:
//   {"name": "dram", "work": <bytes or FLOPs of one repetition>, "seconds": [[repetition, ...], ...]}   (a list per round)
// Exit status 3: the threads could not be pinned; 4: not enough memory.

#include <pthread.h>
#include <sched.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
typedef float Vector __attribute__((vector_size(kVectorBytes)));
constexpr int kLanes = kVectorBytes / 4;
constexpr int kReaders = 8;       // independent sums, so that additions do not wait for each other
constexpr int kAccumulators = 12; // at least latency (4-5) x issue width (2) of a fused multiply-add
constexpr double kShortest = 0.005;  // seconds of one repetition, long against the barriers around it

static std::atomic<float> sink{0.0f};  // results go here, so that no loop can be dropped

static float sum_of(Vector v) {
    float total = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) total += v[lane];
    return total;
}

static float read_all(const Vector* data, size_t count, long passes) {
    Vector sums[kReaders] = {};
    for (long pass = 0; pass < passes; ++pass) {
        for (size_t i = 0; i + kReaders <= count; i += kReaders)
            for (int r = 0; r < kReaders; ++r) sums[r] += data[i + r];
        asm volatile("" ::: "memory");  // the next pass reads again
    }
    float total = 0.0f;
    for (const Vector& part : sums) total += sum_of(part);
    return total;
}

static float multiply_add(long passes, float factor) {
    Vector sums[kAccumulators], scale, offset;
    for (int lane = 0; lane < kLanes; ++lane) scale[lane] = factor, offset[lane] = 1.0f - factor;
    for (int a = 0; a < kAccumulators; ++a) sums[a] = scale + static_cast<float>(a);
    for (long pass = 0; pass < passes; ++pass)
        for (int a = 0; a < kAccumulators; ++a) sums[a] = sums[a] * scale + offset;
    float total = 0.0f;
    for (const Vector& part : sums) total += sum_of(part);
    return total;
}

#if defined(__AVX512BF16__) && !defined(__AMX_TILE__)
#define HAS_BF16 1
constexpr double kBf16Work = 2.0 * 2 * 16;  // of one instruction: pairs of products into 16 sums
static float dot_bf16(long passes, float factor) {
    const __m512bh scale = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor), _mm512_set1_ps(factor));
    __m512 sums[kAccumulators];
    for (int a = 0; a < kAccumulators; ++a) sums[a] = _mm512_set1_ps(static_cast<float>(a));
    for (long pass = 0; pass < passes; ++pass)
        for (int a = 0; a < kAccumulators; ++a) sums[a] = _mm512_dpbf16_ps(sums[a], scale, scale);
    float total = 0.0f;
    for (const __m512& part : sums) total += _mm512_reduce_add_ps(part);
    return total;
}
#endif

#if defined(__AVX512VNNI__) && !defined(__AMX_TILE__)
#define HAS_INT8 1
constexpr double kInt8Work = 2.0 * 4 * 16;  // of one instruction: four products into each of 16 sums
static float dot_int8(long passes, float factor) {
    const __m512i scale = _mm512_set1_epi8(static_cast<char>(factor * 3.0f));
    __m512i sums[kAccumulators];
    for (int a = 0; a < kAccumulators; ++a) sums[a] = _mm512_set1_epi32(a);
    for (long pass = 0; pass < passes; ++pass)
        for (int a = 0; a < kAccumulators; ++a) sums[a] = _mm512_dpbusd_epi32(sums[a], scale, scale);
    int total = 0;
    for (const __m512i& part : sums) total ^= _mm512_reduce_add_epi32(part);
    return static_cast<float>(total);
}
#endif

// Threads wait here for each other; they yield, because the machine may have more work than cores.
class Barrier {
  public:
    explicit Barrier(int parties) : parties_(parties) {}
    void wait() {
        const long generation = generation_.load();
        if (waiting_.fetch_add(1) + 1 == parties_) {
            waiting_.store(0);
            generation_.fetch_add(1);
            return;
        }
        while (generation_.load() == generation) sched_yield();
    }

  private:
    const int parties_;
    std::atomic<int> waiting_{0};
    std::atomic<long> generation_{0};
};

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
        std::fprintf(stderr, "cannot pin a thread to cpu %d\n", cpu);
        std::_Exit(3);
    }
}

using Kernel = std::function<float(int thread, long passes)>;

// Seconds of `repetitions` runs of `kernel` on all threads at once, the first of them dropped.
static std::vector<double> time_runs(const std::vector<int>& cpus, const Kernel& kernel, long passes, int repetitions) {
    Barrier barrier(static_cast<int>(cpus.size()));
    std::vector<double> seconds;
    auto body = [&](int thread) {
        pin(cpus[thread]);
        for (int repetition = 0; repetition <= repetitions; ++repetition) {
            barrier.wait();
            const auto start = std::chrono::steady_clock::now();
            const float result = kernel(thread, passes);
            barrier.wait();
            const auto end = std::chrono::steady_clock::now();
            sink.store(result);
            if (thread == 0 && repetition > 0) seconds.push_back(std::chrono::duration<double>(end - start).count());
        }
    };
    std::vector<std::thread> threads;
    for (size_t t = 0; t < cpus.size(); ++t) threads.emplace_back(body, static_cast<int>(t));
    for (std::thread& thread : threads) thread.join();
    return seconds;
}

static void measure(const char* name, double work_per_pass, const Kernel& kernel, const std::vector<int>& cpus,
                    int rounds, int repetitions) {
    long passes = 1;
    while (time_runs(cpus, kernel, passes, 1)[0] < kShortest && passes < (1L << 40)) passes *= 2;
    std::printf("{\"name\": \"%s\", \"work\": %.0f, \"seconds\": [", name, work_per_pass * static_cast<double>(passes));
    for (int round = 0; round < rounds; ++round) {
        const std::vector<double> seconds = time_runs(cpus, kernel, passes, repetitions);
        std::printf("%s[", round ? ", " : "");
        for (size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.9f", i ? ", " : "", seconds[i]);
        std::printf("]");
    }
    std::printf("]}\n");
}

static void measure_reads(const char* name, size_t bytes, const std::vector<int>& cpus, int rounds, int repetitions) {
    const size_t block = static_cast<size_t>(kVectorBytes) * kReaders;
    const size_t share = (bytes / cpus.size() / block + 1) * block;
    std::vector<Vector*> buffers(cpus.size(), nullptr);
    std::vector<std::thread> touchers;
    for (size_t t = 0; t < cpus.size(); ++t)
        touchers.emplace_back([&, t] {  // first touch by the reader, so that the pages lie near it
            pin(cpus[t]);
            buffers[t] = static_cast<Vector*>(std::aligned_alloc(4096, (share + 4095) / 4096 * 4096));
            if (!buffers[t]) std::_Exit(4);
            float* values = reinterpret_cast<float*>(buffers[t]);
            for (size_t i = 0; i < share / 4; ++i) values[i] = 1e-3f * static_cast<float>(i & 1023);
        });
    for (std::thread& toucher : touchers) toucher.join();
    const Kernel kernel = [&](int t, long passes) { return read_all(buffers[t], share / kVectorBytes, passes); };
    measure(name, static_cast<double>(share * cpus.size()), kernel, cpus, rounds, repetitions);
    for (Vector* buffer : buffers) std::free(buffer);
}

int main(int argc, char** argv) {
    if (argc != 8) return 2;
    std::vector<int> cpus;
    std::stringstream list(argv[1]);
    for (std::string cpu; std::getline(list, cpu, ',');) cpus.push_back(std::atoi(cpu.c_str()));
    const int rounds = std::atoi(argv[6]), repetitions = std::atoi(argv[7]);
    if (cpus.empty() || rounds < 1 || repetitions < 1) return 2;
    const char* names[] = {"dram", "cache", "l2", "l1"};
    for (int level = 0; level < 4; ++level) {
        const size_t bytes = std::strtoull(argv[2 + level], nullptr, 10);
        if (bytes > 0) measure_reads(names[level], bytes, cpus, rounds, repetitions);
    }
    const volatile float factor = 0.999f;  // not known to the compiler
    constexpr long kBlock = 4096;
    const double steps = static_cast<double>(kAccumulators * kBlock) * static_cast<double>(cpus.size());
    const auto compute = [&](const char* name, double work, float (*loop)(long, float)) {
        const Kernel kernel = [&](int, long passes) { return loop(passes * kBlock, factor); };
        measure(name, work * steps, kernel, cpus, rounds, repetitions);
    };
    compute("fp32", 2.0 * kLanes, multiply_add);
#ifdef HAS_BF16
    compute("bf16", kBf16Work, dot_bf16);
#endif
#ifdef HAS_INT8
    compute("int8", kInt8Work, dot_int8);
#endif
    return 0;
}
