"""The live host: nodes and clients on real sockets and disks, running the same processes as the simulator."""
