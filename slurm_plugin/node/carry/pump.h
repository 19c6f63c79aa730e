/* Bytes from one connection to the other, both ways, until both have said all or one broke. */
#pragma once

#include <stdbool.h>

/* Both sockets stay open, for the caller to close.
 * RET true if both sides ended; false if one broke: then closing resets the other, too */
extern bool gt_pump(int near, int far);
