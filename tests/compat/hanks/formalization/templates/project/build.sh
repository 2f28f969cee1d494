#!/bin/sh
grep -c sorry Proofs/Basic.txt
