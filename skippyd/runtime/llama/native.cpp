// The native part of a stage: what must not wait for Python's interpreter lock, and
// what must not let a C++ exception pass through ctypes.
//
// It links against nothing of llama.cpp: functions arrive as addresses, and the two
// structures it reads (a batch, a sampler) are mirrored or opaque. Python checks
// `skippy_native_abi` and the sizes below before it uses anything here.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include <unistd.h>

#include "native.hpp"

extern "C" {

int skippy_native_abi() { return 2; }

// ---- capture of one named tensor -------------------------------------------------

size_t skippy_capture_size() { return sizeof(skippy_capture); }

// Called for every node of a graph. Answering false after the target ends the graph,
// so the final norm and the vocabulary projection are never computed. It fires once
// for each micro-batch: rows are appended.
bool skippy_capture_node(void *tensor, bool ask, void *user) {
    auto *capture = static_cast<skippy_capture *>(user);
    if (ask) {
        return std::strcmp(capture->tensor_name(tensor), capture->target) == 0;
    }
    const size_t bytes = capture->tensor_bytes(tensor);
    if (capture->used_bytes + bytes <= capture->capacity_bytes) {
        capture->tensor_get(tensor, capture->buffer + capture->used_bytes, 0, bytes);
    }
    capture->used_bytes += bytes;
    if (capture->on_full != nullptr && capture->used_bytes == capture->capacity_bytes) {
        capture->on_full(capture->on_full_user);
    }
    return false;
}

// ---- abort -----------------------------------------------------------------------

// Asked about 515 times a token; in Python that costs ten times a token's own time.
bool skippy_should_abort(void *flag) {
    return static_cast<std::atomic<int32_t> *>(flag)->load(std::memory_order_relaxed) != 0;
}

// ---- walls: a C++ exception becomes a number and a text ---------------------------

static const int32_t THREW = INT32_MIN;

static void tell(char *text, size_t capacity, const char *what) {
    if (capacity > 0) {
        std::snprintf(text, capacity, "%s", what);
    }
}

size_t skippy_batch_size() { return sizeof(skippy_batch); }

int32_t skippy_decode(int32_t (*decode)(void *, skippy_batch), void *context,
                      const skippy_batch *batch, char *text, size_t capacity) {
    try {
        return decode(context, *batch);
    } catch (const std::exception &error) {
        tell(text, capacity, error.what());
    } catch (...) {
        tell(text, capacity, "unknown C++ exception");
    }
    return THREW;
}

int32_t skippy_sample(int32_t (*sample)(void *, void *, int32_t), void *sampler,
                      void *context, int32_t row, char *text, size_t capacity) {
    try {
        return sample(sampler, context, row);
    } catch (const std::exception &error) {
        tell(text, capacity, error.what());
    } catch (...) {
        tell(text, capacity, "unknown C++ exception");
    }
    return THREW;
}

int32_t skippy_accept(void (*accept)(void *, int32_t), void *sampler, int32_t token,
                      char *text, size_t capacity) {
    try {
        accept(sampler, token);
        return 0;
    } catch (const std::exception &error) {
        tell(text, capacity, error.what());
    } catch (...) {
        tell(text, capacity, "unknown C++ exception");
    }
    return THREW;
}

typedef int32_t (*tokenize_fn)(const void *, const char *, int32_t, int32_t *, int32_t,
                               bool, bool);

int32_t skippy_tokenize(tokenize_fn tokenize, const void *vocab, const char *bytes,
                        int32_t length, int32_t *tokens, int32_t room, bool add_special,
                        bool parse_special, char *text, size_t capacity) {
    try {
        return tokenize(vocab, bytes, length, tokens, room, add_special, parse_special);
    } catch (const std::exception &error) {
        tell(text, capacity, error.what());
    } catch (...) {
        tell(text, capacity, "unknown C++ exception");
    }
    return THREW;
}

// ---- a slice as a stream -----------------------------------------------------------

struct skippy_segment {
    uint64_t offset;        // place in the stream
    uint64_t length;
    const char *memory;     // the bytes themselves, or null
    int32_t descriptor;     // else a file, or -1 for zeros
    uint64_t file_offset;   // where in the file
};

size_t skippy_segment_size() { return sizeof(skippy_segment); }

struct slice_stream {
    std::vector<skippy_segment> segments;
    uint64_t total;
    uint64_t position;
    std::atomic<uint64_t> *bytes_read;
};

static const skippy_segment *segment_at(const slice_stream &stream, uint64_t position) {
    size_t low = 0, high = stream.segments.size();
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const skippy_segment &segment = stream.segments[middle];
        if (position < segment.offset) {
            high = middle;
        } else if (position >= segment.offset + segment.length) {
            low = middle + 1;
        } else {
            return &segment;
        }
    }
    return nullptr;
}

static ssize_t stream_read(void *cookie, char *out, size_t wanted) {
    auto *stream = static_cast<slice_stream *>(cookie);
    size_t done = 0;
    while (done < wanted && stream->position < stream->total) {
        const skippy_segment *segment = segment_at(*stream, stream->position);
        if (segment == nullptr) {
            errno = EIO;
            return done > 0 ? static_cast<ssize_t>(done) : -1;
        }
        const uint64_t skip = stream->position - segment->offset;
        size_t count = wanted - done;
        if (count > segment->length - skip) {
            count = static_cast<size_t>(segment->length - skip);
        }
        if (segment->memory != nullptr) {
            std::memcpy(out + done, segment->memory + skip, count);
        } else if (segment->descriptor < 0) {
            std::memset(out + done, 0, count);
        } else {
            const ssize_t got = pread(segment->descriptor, out + done, count,
                                      static_cast<off_t>(segment->file_offset + skip));
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                if (got == 0) {
                    errno = EIO;  // the file became shorter than its header says
                }
                return done > 0 ? static_cast<ssize_t>(done) : -1;
            }
            count = static_cast<size_t>(got);
        }
        done += count;
        stream->position += count;
        stream->bytes_read->fetch_add(count, std::memory_order_relaxed);
    }
    return static_cast<ssize_t>(done);
}

static int stream_seek(void *cookie, off64_t *offset, int whence) {
    auto *stream = static_cast<slice_stream *>(cookie);
    int64_t base = 0;
    if (whence == SEEK_CUR) {
        base = static_cast<int64_t>(stream->position);
    } else if (whence == SEEK_END) {
        base = static_cast<int64_t>(stream->total);
    }
    const int64_t target = base + *offset;
    if (target < 0 || target > static_cast<int64_t>(stream->total)) {
        errno = EINVAL;
        return -1;
    }
    stream->position = static_cast<uint64_t>(target);
    *offset = target;
    return 0;
}

static int stream_close(void *cookie) {
    delete static_cast<slice_stream *>(cookie);
    return 0;
}

// `segments` is copied; the memory and descriptors they name must outlive the stream,
// and so must `bytes_read`, which counts what was read.
FILE *skippy_stream_open(const skippy_segment *segments, size_t count, uint64_t total,
                         uint64_t *bytes_read) {
    auto *stream = new (std::nothrow) slice_stream();
    if (stream == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    try {
        stream->segments.assign(segments, segments + count);
    } catch (...) {
        delete stream;
        errno = ENOMEM;
        return nullptr;
    }
    stream->total = total;
    stream->position = 0;
    stream->bytes_read = reinterpret_cast<std::atomic<uint64_t> *>(bytes_read);
    const cookie_io_functions_t functions = {stream_read, nullptr, stream_seek, stream_close};
    FILE *file = fopencookie(stream, "r", functions);
    if (file == nullptr) {
        delete stream;
    }
    return file;
}

int skippy_stream_close(FILE *file) { return std::fclose(file); }

// ---- logs ------------------------------------------------------------------------

struct skippy_log_sink {
    int32_t lowest_level;
    void (*write)(int32_t level, const char *text);
};

size_t skippy_log_sink_size() { return sizeof(skippy_log_sink); }

// llama.cpp says much at debug level on its hot path: it is dropped here, before
// anything needs the interpreter. Level 5 continues the previous line.
void skippy_log(int32_t level, const char *text, void *user) {
    static thread_local int32_t previous = 0;
    const auto *sink = static_cast<const skippy_log_sink *>(user);
    const int32_t effective = level == 5 ? previous : level;
    previous = effective;
    if (effective >= sink->lowest_level) {
        sink->write(effective, text);
    }
}

}  // extern "C"
