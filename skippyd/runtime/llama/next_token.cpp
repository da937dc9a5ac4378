// One token's way through a stage, when it is the token that was foreseen: from the
// socket it arrives on to the socket it leaves by, without Python in between. The weights
// of a model have just gone through the caches, so that every line of Python would be
// read from memory again.

#include <cstring>
#include <ctime>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "native.hpp"

static int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

extern "C" {

// ---- a row -------------------------------------------------------------------------

struct skippy_row {
    int32_t (*decode)(void *, skippy_batch);
    void *context;
    const skippy_batch *batch;
    int32_t *token_input;     // where the batch has its token; null: it has an activation
    skippy_capture *capture;  // null on the final stage
    char *output;             // the captured row
    size_t output_bytes;
    int32_t (*sample)(void *, void *, int32_t);
    void *sampler;            // null: nothing is drawn here
    int32_t drawn;            // the token that was
    int32_t descriptor;       // where head and row go; -1: nowhere
    char *head;
    size_t head_bytes;
    uint32_t token_at[2];     // the head says a token twice: the one drawn, else the input
    int64_t sent_bytes;       // of head and row; 0 when the socket took none
    int64_t sending_ns;       // how long that took
};

size_t skippy_row_size() { return sizeof(skippy_row); }

static void name_token(const skippy_row &row, int32_t token) {
    if (row.head != nullptr) {
        std::memcpy(row.head + row.token_at[0], &token, sizeof token);
        std::memcpy(row.head + row.token_at[1], &token, sizeof token);
    }
}

// Never waits; what the socket does not take is Python's to send.
static void send_row(void *user) {
    auto *row = static_cast<skippy_row *>(user);
    const int64_t begun = now_ns();
    iovec parts[2] = {{row->head, row->head_bytes}, {row->output, row->output_bytes}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = sendmsg(row->descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    row->sent_bytes = sent > 0 ? sent : 0;
    row->sending_ns = now_ns() - begun;
}

// Answers as llama_decode does, or as a wall. The next stage is served first: when its
// frame is out, this one still has to end its graph and to count.
int32_t skippy_run_row(skippy_row *row, int32_t token, char *text, size_t capacity) {
    const bool delivers = row->descriptor >= 0;
    row->sent_bytes = row->sending_ns = 0;
    if (row->token_input != nullptr) {
        *row->token_input = token;
    }
    if (row->capture != nullptr) {
        name_token(*row, token);
        row->capture->buffer = row->output;
        row->capture->capacity_bytes = row->output_bytes;
        row->capture->used_bytes = 0;
        row->capture->on_full = delivers ? send_row : nullptr;
        row->capture->on_full_user = row;
    }
    const int32_t code =
        skippy_decode(row->decode, row->context, row->batch, text, capacity);
    if (row->capture != nullptr) {
        row->capture->on_full = nullptr;
    } else if (code == 0 && row->sampler != nullptr) {
        row->drawn =
            skippy_sample(row->sample, row->sampler, row->context, 0, text, capacity);
        if (row->drawn >= 0) {
            name_token(*row, row->drawn);
        }
        if (row->drawn >= 0 && delivers) {
            send_row(row);
        }
    }
    return code;
}

// ---- a frame -----------------------------------------------------------------------

struct skippy_frame {
    const char *expected;   // the frame's head, but for the token
    char *head;             // the head as it came
    size_t head_bytes;
    uint32_t token_at[2];   // it says the token twice
    char *body;             // what follows the head, or null
    size_t body_bytes;
    size_t received_bytes;
};

size_t skippy_frame_size() { return sizeof(skippy_frame); }

static const int32_t OTHER = 0, FORESEEN = 1, BYTES = 2;

static bool is_expected(const skippy_frame &frame) {
    size_t from = 0;
    for (const uint32_t at : frame.token_at) {
        if (std::memcmp(frame.head + from, frame.expected + from, at - from) != 0) {
            return false;
        }
        from = at + sizeof(int32_t);
    }
    return std::memcmp(frame.head + from, frame.expected + from,
                       frame.head_bytes - from) == 0 &&
           std::memcmp(frame.head + frame.token_at[0], frame.head + frame.token_at[1],
                       sizeof(int32_t)) == 0;
}

static int wait_for_any(pollfd *watched, size_t count, int32_t timeout_ms,
                        int64_t poll_ns) {
    for (const int64_t until = now_ns() + poll_ns; now_ns() < until;) {
        if (const int happened = poll(watched, count, 0)) {
            return happened;
        }
    }
    return poll(watched, count, timeout_ms);
}

// Waits until something happens on one of the descriptors, and reads the frame if all
// that happened is that the first of them has bytes. Before it sleeps it asks for
// `poll_ns`.
//
// FORESEEN: the frame is there, whole and as expected. BYTES: others came, or a part:
// `received_bytes` of head and body are what was read. OTHER: nothing was read.
int32_t skippy_await_frame(skippy_frame *frame, pollfd *watched, size_t count,
                           int32_t timeout_ms, int64_t poll_ns) {
    frame->received_bytes = 0;
    const int happened = wait_for_any(watched, count, timeout_ms, poll_ns);
    if (happened != 1 || watched[0].revents != POLLIN) {
        return OTHER;
    }
    iovec parts[2] = {{frame->head, frame->head_bytes}, {frame->body, frame->body_bytes}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = frame->body_bytes > 0 ? 2 : 1;
    const ssize_t got = recvmsg(watched[0].fd, &message, MSG_DONTWAIT);
    if (got <= 0) {
        return OTHER;  // an end or an error is met again by who looks next
    }
    frame->received_bytes = static_cast<size_t>(got);
    const bool is_whole = frame->received_bytes == frame->head_bytes + frame->body_bytes;
    return is_whole && is_expected(*frame) ? FORESEEN : BYTES;
}

}  // extern "C"
