/*
 * One connection to the engine: questions with a deadline, notices that never block, and
 * a breaker that stops asking for a while after a failure. The caller holds slurmctld's
 * job write lock, so only one thread at a time is here.
 */
#pragma once

#include "protocol.h"
#include "settings.h"
#include "stats.h"

#include <sys/types.h>

typedef struct {
	int fd;			/* -1: not connected */
	pid_t owner;		/* a forked child must not speak on our socket */
	uint64_t last_id;
	int64_t breaker_until_us;
	bool failing;		/* the last question failed */
	bool refused;		/* because nobody listens */
	bool proven;		/* this connection has answered */
	int64_t logged_us;	/* when a failure was last logged */
	uint64_t notices_dropped;
	int64_t waited_us;	/* for answers, in all */
	bool wants_pass;	/* the engine asked for one since this was last cleared */
	char wrong[160];	/* why the last question failed */
	size_t len;
	char in[GT_REPLY_MAX + 1];
} gt_channel_t;

extern int64_t gt_now_us(void);		/* monotonic */

extern void gt_channel_init(gt_channel_t *channel);
extern void gt_channel_close(gt_channel_t *channel);

/*
 * Sends a line built by gt_line_end() that carries id, and waits at most
 * limit_us for the reply with that id. RET GT_ANSWERED with *reply, which is valid
 * until the next call, or GT_BREAKER, GT_DOWN, GT_TIMEOUT, GT_GARBAGE.
 */
extern gt_result_t gt_channel_ask(gt_channel_t *channel, const gt_config_t *config,
			       const gt_line_t *line, uint64_t id,
			       int64_t limit_us, gt_reply_t *reply);

/*
 * Waits so long for what the engine says unasked: `schedule` sets wants_pass.
 * RET false if it hung up, or said anything else
 */
extern bool gt_channel_hear(gt_channel_t *channel, int64_t limit_us);

/* Sends a line, or drops it if it cannot be sent at once. */
extern void gt_channel_tell(gt_channel_t *channel, const gt_config_t *config,
			    const gt_line_t *line);

/* RET true once per outage, and again every ten minutes of it: write a log line */
extern bool gt_channel_should_log(gt_channel_t *channel);
