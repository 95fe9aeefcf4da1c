package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// openTerminal returns the two ends of a new terminal of 80 columns.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	control := func(request uintptr, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(arg)); errno != 0 {
			t.Fatal(errno)
		}
	}
	var unlock int32
	var number uint32
	size := struct{ rows, columns, x, y uint16 }{rows: 24, columns: 80}
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// question matches the question of once before it writes.
var question = regexp.MustCompile(`Type (\S+) to write it: $`)

// atTerminal runs cmd at a terminal, types the requested confirmation, and
// returns what the terminal shows.
func atTerminal(t *testing.T, cmd *exec.Cmd) (shown string, err error) {
	t.Helper()
	master, slave := openTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var out bytes.Buffer
	answered := 0
	for buf := make([]byte, 4096); ; {
		n, err := master.Read(buf)
		out.Write(buf[:n])
		if m := question.FindSubmatch(out.Bytes()[answered:]); m != nil {
			answered = out.Len()
			fmt.Fprintf(master, "%s\n", m[1])
		}
		if err != nil { // the other end is closed
			break
		}
	}
	err = cmd.Wait()
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), err
}
