"""The live host: the processes of the simulator as nodes of the operating system, with sockets and disks."""
