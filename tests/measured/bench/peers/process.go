// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/internal/kit/engine"
)

// process is a running contestant. Its commands and answers are lines of JSON.
type process struct {
	*engine.Process
	name string
}

// start starts a contestant and waits until it is ready. It returns the time that
// took.
func start(s side, env ...string) (*process, time.Duration, error) {
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Env = append(append(os.Environ(),
		"AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_LAMBDA_FUNCTION_NAME=charge", "POWERTOOLS_SERVICE_NAME=charge", "NODE_ENV=production"), s.env...)
	cmd.Env = append(cmd.Env, env...)
	engine.EndWithParent(cmd)
	began := time.Now()
	running, err := engine.Start(cmd)
	if err != nil {
		return nil, 0, err
	}
	p := &process{running, s.String()}
	err = p.read(&struct{}{})
	return p, time.Since(began), err
}

// ask sends a command and reads its answer.
func (p *process) ask(command, answer any) error {
	if err := p.send(command); err != nil {
		return err
	}
	return p.read(answer)
}

func (p *process) send(command any) error {
	line, err := json.Marshal(command)
	if err != nil {
		return err
	}
	_, err = p.In.Write(append(line, '\n'))
	return err
}

func (p *process) read(answer any) error {
	line, err := p.Out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, answer)
	}
	if err != nil {
		p.kill()
		return fmt.Errorf("peers: %s ended or answered %q: %w\n%s", p.name, line, err, p.Log())
	}
	return nil
}

// peak returns the largest resident memory of the process so far, in bytes.
func (p *process) peak() (int64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kb, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, err := strconv.ParseInt(kb, 10, 64)
	return n << 10, err
}

// stop ends the process in order.
func (p *process) stop() {
	p.In.Close()
	_ = p.Wait() // it has done its work
}

// kill ends the process at once, as Lambda does at the time-out.
func (p *process) kill() { _ = p.End(os.Kill) } // reports the signal
