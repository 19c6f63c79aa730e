#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static machine_t the_machine;

bool fits(char *to, size_t size, const char *from)
{
    if (strlen(from) >= size)
        return false;
    strcpy(to, from);
    return true;
}

static bool read_gpu(const char *rest)
{
    char state[8];
    gpu_t *gpu = &the_machine.gpu[the_machine.gpus];
    if (the_machine.gpus == MOST_GPUS ||
        sscanf(rest, "%u %u %31s %95s %7s %95[^\n]", &gpu->minor, &gpu->node, gpu->bus, gpu->uuid, state, gpu->name) != 6)
        return false;
    gpu->is_lost = !strcmp(state, "lost");
    the_machine.gpus++;
    return gpu->node < MOST_NODES;
}

static bool read_cpus(const char *rest)
{
    char *end;
    unsigned long node = strtoul(rest, &end, 10);
    if (node >= MOST_NODES)
        return false;
    for (unsigned int word = 0; word < MOST_WORDS && *end == ' '; word++)
        the_machine.cpus[node][word] = strtoul(end, &end, 16);
    return *end == '\n';
}

static bool read_link(const char *rest)
{
    unsigned int gpu;
    char bus[32];
    if (sscanf(rest, "%u %31s", &gpu, bus) != 2 || gpu >= the_machine.gpus || the_machine.gpu[gpu].links == MOST_LINKS)
        return false;
    return fits(the_machine.gpu[gpu].link[the_machine.gpu[gpu].links++], sizeof(bus), bus);
}

static bool read_path(const char *rest)
{
    unsigned int a, b, level;
    if (sscanf(rest, "%u %u %u", &a, &b, &level) != 3 || a >= the_machine.gpus || b >= the_machine.gpus)
        return false;
    the_machine.path[a][b] = the_machine.path[b][a] = (unsigned char)level;
    return true;
}

static bool read_slice(const char *rest)
{
    unsigned int of;
    slice_t found = {0};
    if (sscanf(rest, "%u %u %u %u %u %95s %95[^\n]", &of, &found.instance, &found.compute_instance, &found.compute,
               &found.memory_mb, found.uuid, found.name) != 7 ||
        of >= the_machine.gpus || the_machine.gpu[of].slices == MOST_SLICES)
        return false;
    the_machine.gpu[of].slice[the_machine.gpu[of].slices++] = found;
    return true;
}

static bool read_line(const char *line)
{
    static const struct {
        const char *word;
        bool (*read)(const char *rest);
    } kinds[] = {{"gpu ", read_gpu}, {"node ", read_cpus}, {"link ", read_link}, {"path ", read_path}, {"slice ", read_slice}};
    if (sscanf(line, "driver %95s", the_machine.driver) == 1)
        return true;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (!strncmp(line, kinds[i].word, strlen(kinds[i].word)))
            return kinds[i].read(line + strlen(kinds[i].word));
    return false;
}

static bool load(void)
{
    const char *path = getenv("FAKEGPU_MACHINE");
    char line[1024];
    bool is_good = true;
    FILE *file = fopen(path ? path : "/etc/fakegpu/machine", "r");
    if (!file)
        return false;
    while (is_good && fgets(line, sizeof(line), file))
        if (!(is_good = read_line(line)))
            fprintf(stderr, "fake GPUs: not understood: %s", line);
    fclose(file);
    return is_good;
}

const machine_t *machine(void)
{
    static enum { UNKNOWN, GOOD, BAD } state;
    if (state == UNKNOWN)
        state = load() ? GOOD : BAD;
    return state == GOOD ? &the_machine : NULL;
}
