/* A caller: compares versions before anything else, and reads why a call was refused. */
#include <stdio.h>
#include <string.h>

#include "proofhouse_kernels.h"

typedef void (*any)(void);

/* Every function of the header, so that one which the library does not have fails to link. */
static any const functions[] = {
    (any)proofhouse_version,
    (any)proofhouse_status_name,
    (any)proofhouse_last_error,
    (any)proofhouse_last_error_text,
    (any)proofhouse_device_count,
    (any)proofhouse_device_open,
    (any)proofhouse_device_describe,
    (any)proofhouse_device_close,
    (any)proofhouse_operator_prepare,
    (any)proofhouse_operator_enqueue,
    (any)proofhouse_operator_check,
    (any)proofhouse_operator_kernel_count,
    (any)proofhouse_operator_kernel_name,
    (any)proofhouse_operator_close,
    (any)proofhouse_enqueue,
    (any)proofhouse_cache_clear,
    (any)proofhouse_counters,
    (any)proofhouse_counters_reset,
};

int main(void) {
    int same = strcmp(proofhouse_version(), PROOFHOUSE_KERNELS_VERSION) == 0;
    printf("version: %s\n", same ? "same" : "another");

    proofhouse_device *device = NULL;
    printf("null: %s\n", proofhouse_status_name(proofhouse_device_open(NULL, &device)));

    proofhouse_open_options options = {.size = sizeof options - 1};
    int32_t status = proofhouse_device_open(&options, &device);
    proofhouse_error error = {.size = sizeof error};
    if (proofhouse_last_error(&error) != PROOFHOUSE_STATUS_OK || error.status != status) return 1;
    if (strcmp(error.argument, "options") != 0 || device != NULL) return 2;
    printf("size: %s\n", proofhouse_status_name(error.status));

    for (size_t at = 0; at < sizeof functions / sizeof functions[0]; at++) {
        if (functions[at] == NULL) return 3;
    }
    printf("all: linked\n");
    return 0;
}
