// Verification of models by execution: plans, reports, their text and JSON.
#pragma once
