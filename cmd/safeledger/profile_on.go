//go:build profile

package main

import (
	"fmt"
	"os"
	"runtime/pprof"
)

// profiling writes a CPU profile of the whole run into the file that CPU_PROFILE names.
// It is a build of its own, for `make profile`: the service has no switch and no
// endpoint for it, because a profile shows what others pay.
func profiling() (stop func()) {
	file, err := os.Create(os.Getenv("CPU_PROFILE"))
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "safeledger: no profile: %v\n", err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "safeledger: the profile: %v\n", err)
		}
	}
}
