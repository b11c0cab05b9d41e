package config

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow to five times what is alive before garbage is
// collected. What is alive is small (some 10 MB at 256 tills, most of it the stacks and
// buffers of those who wait for the wallet or the disk), and each collection goes
// through all those stacks: at Go's default of 100 that was a sixth of the server's
// CPU. The memory it costs is in docs/performance.md.
const gcPercent = 400

// CollectLessOften sets how often garbage is collected, unless the operator has said
// so (GOGC). A memory limit (GOMEMLIMIT) holds in any case.
func CollectLessOften() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
}
