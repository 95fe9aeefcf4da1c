// SPDX-License-Identifier: Apache-2.0

package kmsseal

// Held returns how many data keys are in memory.
func (s *Sealer) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}
