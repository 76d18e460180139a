# Generates kvopt's own C++ for ONNX's protobuf messages from the installed onnx/onnx.proto.
#
# Two copies of protobuf package `onnx` in one process abort or are silently wrong, so the package
# and the file are renamed: a host program may link ONNX as well. Fields that the installed
# description does not have yet, and that kvopt writes, are added under their published numbers.
find_package(Protobuf REQUIRED)
find_path(KVOPT_ONNX_INCLUDE onnx/onnx.proto REQUIRED)

set(kvopt_proto_dir ${PROJECT_BINARY_DIR}/generated/proto)
file(READ ${KVOPT_ONNX_INCLUDE}/onnx/onnx.proto kvopt_proto)
string(REPLACE "package onnx;" "package kvopt.onnx;" kvopt_proto "${kvopt_proto}")

function(kvopt_add_field message number declaration)
  string(REGEX MATCH "message ${message} {[^}]*= ${number};" present "${kvopt_proto}")
  if(NOT present)
    string(REPLACE "message ${message} {" "message ${message} {\n  ${declaration} = ${number};"
           edited "${kvopt_proto}")
    set(kvopt_proto "${edited}" PARENT_SCOPE)
  endif()
endfunction()
kvopt_add_field(NodeProto 8 "optional string overload")
kvopt_add_field(NodeProto 9 "repeated StringStringEntryProto metadata_props")
kvopt_add_field(FunctionProto 11 "repeated AttributeProto attribute_proto")
kvopt_add_field(FunctionProto 12 "repeated ValueInfoProto value_info")
kvopt_add_field(FunctionProto 13 "optional string overload")

file(CONFIGURE OUTPUT ${kvopt_proto_dir}/kvopt_onnx.proto CONTENT "${kvopt_proto}" @ONLY)
add_custom_command(
  OUTPUT ${kvopt_proto_dir}/kvopt_onnx.pb.cc ${kvopt_proto_dir}/kvopt_onnx.pb.h
  COMMAND protobuf::protoc --cpp_out=${kvopt_proto_dir} --proto_path=${kvopt_proto_dir}
          kvopt_onnx.proto
  DEPENDS ${kvopt_proto_dir}/kvopt_onnx.proto
  COMMENT "Generating kvopt_onnx.pb.cc")
add_library(kvopt_proto STATIC ${kvopt_proto_dir}/kvopt_onnx.pb.cc)
target_include_directories(kvopt_proto SYSTEM PUBLIC ${kvopt_proto_dir})
target_link_libraries(kvopt_proto PUBLIC protobuf::libprotobuf)
set_target_properties(kvopt_proto PROPERTIES POSITION_INDEPENDENT_CODE ON)
