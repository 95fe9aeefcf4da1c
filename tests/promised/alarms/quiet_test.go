// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/telemetry/emf"
)

// service is a fixture whose function gets a request from time to time. Each request
// is a separate invocation.
type service struct {
	*fixture
	timeout  time.Duration
	function string // dimensions of the metrics that Lambda reports of it
	requests int
	reports  []report   // that Lambda has not made yet
	waiting  []*process // for a table that does not answer

	killed *idempotent.Guard // writes claims and nothing after them, as a process that is killed
	cut    *idempotent.Guard // cannot use the table
}

// report is what Lambda reports of an invocation.
type report struct {
	began, at time.Time
	failed    float64
}

// process is an invocation in its own process, whose calls to the table are accepted and
// never answered. Its time is that of the bubble.
type process struct {
	began, ended time.Time
	lines        bytes.Buffer // of metrics, which it writes at its end
}

func newService(t *testing.T, timeout time.Duration, setting string) *service {
	t.Helper()
	s := &service{fixture: newFixture(t, evaluators[setting]()), timeout: timeout}
	s.alarms = slices.DeleteFunc(s.alarms, func(a *Alarm) bool {
		if a.ID == "Charges FunctionFailsLong" {
			s.function = a.Queries["errors"].Dimensions
		}
		// The construct does not make FunctionFails for a longer time-out.
		other := !strings.HasPrefix(a.ID, "Charges ") || nameOf(a) == "FunctionFails" && timeout >= 10*time.Minute
		if other {
			delete(s.states, a)
		}
		return other
	})
	guard := func(observe bool, f func(context.Context, *idempotenttest.StoreCall)) *idempotent.Guard {
		g, err := idempotent.New(idempotenttest.Intercept(s.store, f), func(o *idempotent.Options) {
			o.Now, o.Logger = func() time.Time { return s.now }, slog.New(slog.DiscardHandler)
			if observe {
				o.Observer = s.output
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	s.killed = guard(false, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Op == driver.OpInsert {
			c.Do(ctx)
		}
	})
	s.cut = guard(true, func(_ context.Context, c *idempotenttest.StoreCall) { c.Err = errors.New("access denied") })
	return s
}

// fresh returns the key of a new request.
func (s *service) fresh() idempotent.Key {
	s.requests++
	return idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint("request ", s.requests), Fingerprint: idempotent.FingerprintBytes(nil)}
}

// invoke makes an invocation that Lambda reports when it has ended.
func (s *service) invoke(takes time.Duration, failed bool) {
	r := report{began: s.now, at: s.now.Add(takes + s.evaluator.Delay)}
	if failed {
		r.failed = 1
	}
	s.reports = append(s.reports, r)
}

// ask makes a request whose handler returns err, in an invocation that succeeds, as
// one that answers with HTTP does.
func (s *service) ask(g *idempotent.Guard, key idempotent.Key, err error) error {
	s.invoke(time.Second, false)
	_, err = idempotent.Do(invocation{s.t.Context(), s.now.Add(s.timeout)}, g, key, func(context.Context) (int, error) { return 1, err })
	return err
}

// kill makes a request that is killed at the function's time-out.
func (s *service) kill(key idempotent.Key) {
	s.invoke(s.timeout, true)
	s.claim(key)
}

// claim leaves a record in progress.
func (s *service) claim(key idempotent.Key) {
	_, _ = idempotent.Do(invocation{s.t.Context(), s.now.Add(s.timeout)}, s.killed, key, func(context.Context) (int, error) { return 1, nil })
}

// hang makes a request that gets no answer from the table.
func (s *service) hang(key idempotent.Key) {
	s.t.Helper()
	time.Sleep(time.Until(s.now))
	p := &process{began: s.now}
	output, err := emf.New(&p.lines, "Charges")
	if err != nil {
		s.t.Fatal(err)
	}
	silent := func(ctx context.Context, c *idempotenttest.StoreCall) {
		<-ctx.Done()
		c.Err = ctx.Err()
	}
	guard, err := idempotent.New(idempotenttest.Intercept(s.store, silent), func(o *idempotent.Options) {
		o.Observer, o.Logger = output, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	handler := emf.Flushed(output, func(ctx context.Context, key idempotent.Key) (int, error) {
		return idempotent.Do(ctx, guard, key, func(context.Context) (int, error) { return 1, nil })
	})
	ctx, cancel := context.WithDeadline(s.t.Context(), s.now.Add(s.timeout))
	go func() {
		defer cancel()
		if _, err := handler(ctx, key); err == nil {
			s.t.Error("the request ran although the table does not answer")
		}
		p.ended = time.Now()
	}()
	s.waiting = append(s.waiting, p)
}

// processesEnd waits for every [process], and for what it does after its answer.
func processesEnd() { time.Sleep(time.Hour) }

// wait waits until end for the processes, and reports those that have ended. Lambda kills a
// process at its time-out, and what it would write later is lost.
func (s *service) wait(end time.Time) {
	if len(s.waiting) == 0 {
		return
	}
	time.Sleep(time.Until(end))
	synctest.Wait()
	s.waiting = slices.DeleteFunc(s.waiting, func(p *process) bool {
		killed := p.began.Add(s.timeout)
		switch {
		case !p.ended.IsZero() && p.ended.Before(killed):
			for line := range bytes.Lines(p.lines.Bytes()) {
				if _, err := s.cloud.Write(line); err != nil {
					s.t.Fatal(err)
				}
			}
			s.reports = append(s.reports, report{began: p.began, at: p.ended.Add(s.evaluator.Delay)})
		case end.Before(killed):
			return false
		default:
			s.reports = append(s.reports, report{began: p.began, at: killed.Add(s.evaluator.Delay), failed: 1})
		}
		return true
	})
}

// run runs minutes, with a request in every rate of them, until stop, if it is set,
// returns true. It returns how many minutes ran.
func (s *service) run(minutes, rate int, request func(), stop func() bool) int {
	for i := range minutes {
		s.every = func() {
			if i%rate == 0 {
				request()
			}
		}
		s.minute()
		if stop != nil && stop() {
			return i + 1
		}
	}
	return minutes
}

// minute is fixture.minute with what Lambda reports of the function.
func (s *service) minute() {
	end := s.now.Truncate(time.Minute).Add(time.Minute)
	every := s.every
	s.every = func() {
		every()
		s.wait(end)
		s.reports = slices.DeleteFunc(s.reports, func(r report) bool {
			if r.at.Before(end) {
				s.cloud.Put(Metric{"AWS/Lambda", "Invocations", s.function}, r.began, 1)
				s.cloud.Put(Metric{"AWS/Lambda", "Errors", s.function}, r.began, r.failed)
			}
			return r.at.Before(end)
		})
	}
	s.fixture.minute()
	s.every = every
}

// rings returns the alarms in ALARM that notify a topic.
func (s *service) rings(topic string) (names []string) {
	for a, state := range s.states {
		if state == InAlarm && strings.HasPrefix(a.Topic, topic) {
			names = append(names, nameOf(a))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *service) works() {
	if err := s.ask(s.guard, s.fresh(), nil); err != nil {
		s.t.Fatal(err)
	}
}

// failure is a way in which every request fails.
type failure struct {
	name    string
	timeout time.Duration
	before  func(*service) // what is done while the service is healthy
	request func(*service)
	alarms  []string    // of which the first to ring counts
	within  map[int]int // minutes until then, at most, by the minutes between two requests
}

// failures are the rows of the table. Every page is early enough, and a provider that is
// down is left to the alarm on the age of unknown outcomes.
func failures() []failure {
	const short = 10 * time.Second
	upTo5Minutes := map[int]int{1: 32, 3: 30, 10: 30, 30: 70}
	at15Minutes := map[int]int{1: 55, 3: 55, 10: 55, 30: 95}
	refusal, crash := []string{"StoreErrors", "StoreErrorsLong", "NoOutcome"}, []string{"FunctionFails", "FunctionFailsLong"}
	kill := func(s *service) { s.kill(s.fresh()) }
	hang := func(s *service) { s.hang(s.fresh()) }
	one := idempotent.Key{Operation: "charge", Scope: "acme", ID: "one", Fingerprint: idempotent.FingerprintBytes(nil)}
	again := func(s *service) { _ = s.ask(s.guard, one, nil) }
	return []failure{
		{"is refused by the table", short, nil, func(s *service) { _ = s.ask(s.cut, s.fresh(), nil) }, refusal, upTo5Minutes},
		{"gets no answer from the table, at a time-out of 10 s", short, nil, hang, refusal, upTo5Minutes},
		{"gets no answer from the table, at a time-out of 5 min", 5 * time.Minute, nil, hang, refusal, upTo5Minutes},
		{"gets no answer from the table, at a time-out of 15 min", 15 * time.Minute, nil, hang, refusal, at15Minutes},
		{"is killed at a time-out of 10 s", short, nil, kill, crash, upTo5Minutes},
		{"is killed at a time-out of 5 min", 5 * time.Minute, nil, kill, crash, upTo5Minutes},
		{"is killed at a time-out of 15 min", 15 * time.Minute, nil, kill, crash, at15Minutes},
		{"crashes when the function starts", short, nil, func(s *service) { s.invoke(time.Second, true) }, crash, upTo5Minutes},
		{"finds a result of another type", short, func(s *service) {
			if _, err := idempotent.Do(invocation{s.t.Context(), s.now.Add(short)}, s.guard, one, func(context.Context) (string, error) { return "one", nil }); err != nil {
				s.t.Fatal(err)
			}
		}, again, []string{"NoOutcome"}, upTo5Minutes},
		{"finds its key in progress", short, nil, func(s *service) {
			key := s.fresh()
			s.claim(key)
			_ = s.ask(s.guard, key, nil)
		}, []string{"NoOutcome"}, upTo5Minutes},
		{"finds an unknown outcome", short, func(s *service) {
			s.resolve = answers(idempotent.Later(0), nil)
			_ = s.ask(s.guard, one, errors.New("no answer"))
		}, again, []string{"NoOutcome"}, upTo5Minutes},
		{"fails at the provider, which is down", short, nil, func(s *service) {
			s.resolve = answers(idempotent.Resolution{}, errors.New("the provider is down"))
			_ = s.ask(s.guard, s.fresh(), errors.New("no answer"))
		}, []string{"OldestUnknown"}, upTo5Minutes},
	}
}

// The table of docs/reports/alarms.md: how long it takes until an operator is paged because of a
// service with few requests, all of which fail. It starts with the first of them, and is
// the worst of the settings that CloudWatch does not publish.
func TestQuietServices(t *testing.T) {
	t.Parallel()
	rates := []int{1, 3, 10, 30}
	var table strings.Builder
	table.WriteString("| every request | one in 1 minute | in 3 minutes | in 10 minutes | in 30 minutes | first alarm |\n| --- | --: | --: | --: | --: | --- |\n")
	for _, f := range failures() {
		fmt.Fprintf(&table, "| %s |", f.name)
		var paged []string
		for _, rate := range rates {
			worst, first := 0, ""
			for _, setting := range slices.Sorted(maps.Keys(evaluators)) {
				var minutes int
				var alarm string
				synctest.Test(t, func(t *testing.T) {
					defer processesEnd()
					minutes, alarm = f.pages(t, rate, setting)
				})
				if minutes > f.within[rate] {
					t.Errorf("every request %s, one in %d minutes, data %s: %s rings after %d minutes, want at most %d", f.name, rate, setting, alarm, minutes, f.within[rate])
				}
				if minutes > worst {
					worst, first = minutes, alarm
				}
			}
			fmt.Fprintf(&table, " %d |", worst)
			paged = slices.Compact(append(paged, "`"+first+"`"))
		}
		fmt.Fprintf(&table, " %s |\n", strings.Join(paged, ", then "))
	}
	kit.Part(t, "../../../docs/reports/alarms.md", "quiet", table.String(), *update)
}

// pages returns the minutes from the first request that fails until the first of the
// failure's alarms rings, and that alarm, which notifies the pager.
func (f *failure) pages(t *testing.T, rate int, setting string) (minutes int, alarm string) {
	t.Helper()
	s := newService(t, f.timeout, setting)
	s.run(130, rate, s.works, nil)
	if names := s.rings("Pager"); len(names) > 0 {
		t.Fatalf("a healthy service rings %v", names)
	}
	if f.before != nil {
		f.before(s)
		s.run(30, rate, s.works, nil)
	}
	minutes = s.run(200, rate, func() { f.request(s) }, func() bool {
		ringing := s.rings("Pager")
		i := slices.IndexFunc(f.alarms, func(name string) bool { return slices.Contains(ringing, name) })
		if i >= 0 {
			alarm = f.alarms[i]
		}
		return i >= 0
	})
	return minutes, alarm
}

// A table that does not answer pages at 100 requests a second too, and in a partial outage if
// more than a twentieth of the calls get no answer. No function is killed, so nothing else
// pages before.
func TestTableThatDoesNotAnswerPages(t *testing.T) {
	t.Parallel()
	const requests = 6000 // a minute
	for _, c := range []struct {
		timeout time.Duration
		silent  int // of the requests
		rings   bool
	}{
		{3 * time.Second, 240, false}, {3 * time.Second, 360, true}, {29 * time.Second, 360, true}, {time.Second, requests, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			defer processesEnd()
			s := newService(t, c.timeout, "two minutes late")
			s.run(70, 1, func() { s.event(event.RequestEnded, requests) }, nil)
			if names := s.rings("Pager"); len(names) > 0 {
				t.Fatalf("a healthy service rings %v", names)
			}
			const within, limit = 6, 10 // minutes
			minutes := s.run(limit, 1, func() {
				s.event(event.RequestEnded, float64(requests-c.silent))
				for range c.silent {
					s.hang(s.fresh())
				}
			}, func() bool { return len(s.rings("Pager")) > 0 })
			if names := s.rings("Pager"); c.rings != slices.Equal(names, []string{"StoreErrors"}) || c.rings && minutes > within || !c.rings && len(names) > 0 {
				t.Errorf("time-out %s, %d of %d requests a minute get no answer: after %d minutes these ring: %v", c.timeout, c.silent, requests, minutes, names)
			}
		})
	}
}

// A week without a page, at each rate of requests and with short and long time-outs. On
// four days a request is killed, at another distance from the healthy ones, and its
// client asks once a minute for a quarter of an hour or until it has the outcome. On one
// day a message fails in each of its five deliveries, and on one the table refuses a
// request.
func TestQuietWeeks(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{1, 3, 10, 30} {
		for _, timeout := range []time.Duration{10 * time.Second, 5 * time.Minute, 15 * time.Minute} {
			t.Run(fmt.Sprintf("one in %d min, time-out %s", rate, timeout), func(t *testing.T) {
				t.Parallel()
				s := newService(t, timeout, "a minute late")
				s.resolve = answers(idempotent.Resolved(1), nil)
				s.run(130, rate, s.works, nil) // the alarms on silence end with the reconciler's first runs
				var stuck idempotent.Key
				const day = 24 * 60
				kills, waits, refused := map[int]int{1: 0, 2: rate / 3, 4: rate / 2, 6: rate - 1}, false, 0
				for minute := range 7 * day {
					today, now := minute/day, minute%day
					s.every = func() {
						if minute%rate == 0 {
							s.works()
						}
						at, kill := kills[today]
						switch {
						case kill && now == at:
							stuck, waits = s.fresh(), true
							s.kill(stuck)
						case kill && waits && now <= at+15:
							if waits = s.ask(s.guard, stuck, nil) != nil; waits {
								refused++
							}
						case today == 3 && now < 5:
							s.invoke(time.Second, true)
						case today == 5 && now == 0:
							_ = s.ask(s.cut, s.fresh(), nil)
						}
					}
					if s.minute(); len(s.rings("Pager")) > 0 {
						t.Fatalf("on day %d, minute %d, these ring: %v", today, now, s.rings("Pager"))
					}
				}
				// Until the lease ends and the reconciler has run.
				if least := len(kills) * int(timeout/time.Minute); refused < max(least, len(kills)) || timeout < 10*time.Minute && waits {
					t.Errorf("clients were refused %d times, and the last one still waits: %v", refused, waits)
				}
			})
		}
	}
}

// The known exception: in a service with nothing else, a client that asks for one stuck
// key looks as if no request gets an outcome. docs/reports/alarms.md says so.
func TestOneStuckKeyPages(t *testing.T) {
	t.Parallel()
	s := newService(t, 10*time.Second, "a minute late")
	s.resolve = answers(idempotent.Later(0), nil)
	s.alarms = slices.DeleteFunc(s.alarms, func(a *Alarm) bool { return nameOf(a) != "NoOutcome" })
	s.run(130, 30, s.works, nil)
	key := s.fresh()
	s.kill(key)
	const asks = 45 // minutes
	first := s.run(asks, 1, func() { _ = s.ask(s.guard, key, nil) }, func() bool { return len(s.rings("Pager")) > 0 })
	if first == asks {
		t.Errorf("it does not page any more: remove the exception from docs/reports/alarms.md")
	}
	kit.Part(t, "../../../docs/reports/alarms.md", "stuck", fmt.Sprintf("**One exception is known**: in a service without any other request, a client that asks for one stuck key once a minute, say\n"+
		"for %d minutes, raises `NoOutcome` after %d.\n", asks, first), *update)
}
