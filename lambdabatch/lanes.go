// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import "container/heap"

// lanes hands out the messages of a batch, earliest first. Messages of one lane
// are handed out one after the other. It is not safe for concurrent use.
type lanes struct {
	waiting [][]int // by lane: the messages that are not handed out yet
	idle    order   // lanes with a message to hand out, by their first message
	stopped bool
}

// newLanes returns the messages 0 to len(lane)-1, each in its lane.
func newLanes(lane []string) *lanes {
	l := &lanes{}
	numbers := map[string]int{}
	for i, name := range lane {
		n, found := numbers[name]
		if !found {
			n = len(l.waiting)
			numbers[name] = n
			l.waiting = append(l.waiting, nil)
		}
		l.waiting[n] = append(l.waiting[n], i)
	}
	for n, messages := range l.waiting {
		l.idle = append(l.idle, head{messages[0], n})
	}
	return l // idle is in order, and so a heap
}

// next returns the earliest message whose lane is idle, and its lane, which is
// busy from then on. It returns false if no lane is idle or the lanes are
// stopped.
func (l *lanes) next() (message, lane int, ok bool) {
	if l.stopped || len(l.idle) == 0 {
		return 0, 0, false
	}
	h := heap.Pop(&l.idle).(head)
	l.waiting[h.lane] = l.waiting[h.lane][1:]
	return h.message, h.lane, true
}

// done reports that the last message of that lane was processed.
func (l *lanes) done(lane int) {
	if rest := l.waiting[lane]; len(rest) > 0 {
		heap.Push(&l.idle, head{rest[0], lane})
	}
}

// drop removes the remaining messages of a busy lane.
func (l *lanes) drop(lane int) { l.waiting[lane] = nil }

// left returns how many messages are not handed out yet.
func (l *lanes) left() (n int) {
	for _, messages := range l.waiting {
		n += len(messages)
	}
	return n
}

// stop makes next return false.
func (l *lanes) stop() { l.stopped = true }

// head is the first waiting message of a lane.
type head struct{ message, lane int }

// order is a heap of lanes by their first message.
type order []head

func (o order) Len() int           { return len(o) }
func (o order) Less(i, j int) bool { return o[i].message < o[j].message }
func (o order) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *order) Push(x any)        { *o = append(*o, x.(head)) }
func (o *order) Pop() any {
	last := (*o)[len(*o)-1]
	*o = (*o)[:len(*o)-1]
	return last
}
