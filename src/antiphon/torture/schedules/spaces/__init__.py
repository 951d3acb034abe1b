"""Schedules for spaces, in which conversations go from topic to topic.

It imports what other schedules do, and draws on those of the cube.
"""
