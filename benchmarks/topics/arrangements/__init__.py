"""Arrangements of training as they run: how fast is each, how near to what its busiest part allows, how exact is its
ratio of environment steps to gradient steps?"""
