"""The same traffic through Antiphon and through other systems, side by side: ``antiphon bench peers``.

``workload`` says who publishes what to whom, ``measure`` conducts one contender through one workload, ``worker`` is the
program of every process that takes part, ``report`` turns counts into figures. A contender is one module that says how
to start its server, if it has one, and how a process publishes and receives.
"""
