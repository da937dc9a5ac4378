// What the parts of the native library share; `native.py` mirrors it.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct skippy_capture {
    char target[64];
    char *buffer;
    size_t capacity_bytes;
    size_t used_bytes;  // may exceed the capacity: then the rows did not fit
    const char *(*tensor_name)(const void *);
    size_t (*tensor_bytes)(const void *);
    void (*tensor_get)(const void *, void *, size_t, size_t);
    // Called once the buffer is full; null: nobody waits for the rows.
    void (*on_full)(void *);
    void *on_full_user;
};

struct skippy_batch {
    int32_t n_tokens;
    void *token, *embd, *pos, *n_seq_id, *seq_id, *logits;
};

int32_t skippy_decode(int32_t (*decode)(void *, skippy_batch), void *context,
                      const skippy_batch *batch, char *text, size_t capacity);

int32_t skippy_sample(int32_t (*sample)(void *, void *, int32_t), void *sampler,
                      void *context, int32_t row, char *text, size_t capacity);

}  // extern "C"
