/* The node's GPUs as the data file tells them; slurm_cluster/detected.py writes it. One line each:
 *
 *   driver VERSION
 *   node NUMBER WORD...              CPUs of a NUMA node, 64 a word in hexadecimal, lowest first
 *   gpu MINOR NUMA BUS UUID lost|ok NAME    in the order of PCI addresses
 *   link GPU BUS                     one more NVLink of that GPU, to a GPU's address or an NVSwitch's
 *   path GPU GPU LEVEL               nvmlGpuTopologyLevel_t
 *   slice GPU GI CI COMPUTE MB UUID NAME    a MIG device
 */
#ifndef FAKE_MACHINE_H
#define FAKE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

/* Each library has its own. */
#pragma GCC visibility push(hidden)

enum { MOST_GPUS = 64, MOST_LINKS = 18, MOST_SLICES = 8, MOST_NODES = 64, MOST_WORDS = 16, TEXT = 96 };

typedef struct {
    unsigned int instance, compute_instance, compute, memory_mb;
    char uuid[TEXT], name[TEXT];
} slice_t;

typedef struct {
    unsigned int minor, node, links, slices;
    bool is_lost;
    char bus[32], uuid[TEXT], name[TEXT];
    char link[MOST_LINKS][32];
    slice_t slice[MOST_SLICES];
} gpu_t;

typedef struct {
    char driver[TEXT];
    unsigned int gpus;
    gpu_t gpu[MOST_GPUS];
    unsigned char path[MOST_GPUS][MOST_GPUS];
    unsigned long cpus[MOST_NODES][MOST_WORDS];
} machine_t;

/* Of the file at $FAKEGPU_MACHINE, or /etc/fakegpu/machine; NULL where it cannot be read, or has
 * another line than these (which is told on stderr). Read once. */
const machine_t *machine(void);

/* Copies a text as the libraries do; false where it does not fit. */
bool fits(char *to, size_t size, const char *from);

#pragma GCC visibility pop

#endif
